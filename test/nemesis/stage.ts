/** Owns what a run plays on: both stores, a link to each for every process, and a database that remembers everything. */
import { Redis } from 'ioredis'
import pg from 'pg'
import { type Store, startPostgres, startRedis } from '../../src/dev/index.ts'
import { migrate } from '../../src/index.ts'
import { createJournal, type Journal } from '../support/journal.ts'
import { type StoreProxy, startProxy } from '../support/proxy.ts'
import type { Capacity, EndedJob, Evidence, Life } from './evidence.ts'
import type { StoreName } from './plan.ts'

/** Beside the journal of jobs: lives of workers, and what limits allowed when. */
const REMEMBER = `
  create table effects (job_id uuid not null, token bigint not null);
  create table journal.lives (
    id int primary key, name text not null, lease_ms int not null, dead_at timestamptz, expired_at timestamptz
  );
  create function journal.note_life() returns trigger language plpgsql as $$
  begin
    if tg_op = 'INSERT' then
      insert into journal.lives (id, name, lease_ms) values (new.id, new.name, new.lease_ms);
    elsif old.dead_at is null and new.dead_at is not null then
      update journal.lives set dead_at = new.dead_at, expired_at = old.expires_at where id = new.id;
    end if;
    return null;
  end $$;
  create trigger journal_lives after insert or update on longshore.workers
    for each row execute function journal.note_life();
  create table journal.capacities (
    no bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(), task text not null, key text not null, capacity int not null
  );
  create function journal.note_capacity() returns trigger language plpgsql as $$
  begin
    -- By whoever holds the limit and all its slots, see hold_limits.
    insert into journal.capacities (task, key, capacity) values (new.task, new.key, new.capacity);
    return null;
  end $$;
  create trigger journal_made_capacities after insert on longshore.limits
    for each row when (new.capacity is not null) execute function journal.note_capacity();
  create trigger journal_capacities after update of capacity on longshore.limits
    for each row when (new.capacity is not null and new.capacity is distinct from old.capacity)
    execute function journal.note_capacity();`

const ENDED = `
  select f.id, f.payload->>'key' as key, f.state, f.lease_token::float8 as token, f.error->>'code' as "errorCode",
    f.group_id as group, f.workflow::float8 as workflow, f.workflow_seq::float8 as "workflowSeq",
    coalesce(e.tokens, '{}') as effects
  from longshore.finished_jobs f
  left join (select job_id, array_agg(token::float8) as tokens from effects group by job_id) e on e.job_id = f.id`

export interface Stage {
  readonly postgres: Store
  readonly redis: Store
  readonly journal: Journal
  /** The way of one process to a store. */
  link(slot: string, store: StoreName): StoreProxy
  links(store: StoreName): StoreProxy[]
  /** Rows of one statement, past all links; fails while Postgres is away. */
  rows<Row>(text: string, values?: unknown[]): Promise<Row[]>
  /** A command to Redis itself. */
  command(name: string, ...args: string[]): Promise<unknown>
  /** What Postgres knows. */
  remember(): Promise<Omit<Evidence, 'calls' | 'effects' | 'faults'>>
  close(): Promise<void>
}

export async function setStage(slots: readonly string[]): Promise<Stage> {
  const [postgres, redis] = await Promise.all([startPostgres({ own: true }), startRedis({ own: true })])
  const pool = new pg.Pool({ connectionString: postgres.url, max: 4, connectionTimeoutMillis: 5000 })
  pool.on('error', () => undefined) // Postgres is killed on purpose
  const links = new Map<string, StoreProxy>()
  const rows = async <Row>(text: string, values?: unknown[]) => (await pool.query(text, values)).rows as Row[]
  const journal = createJournal({ rows })
  const close = async () => {
    await Promise.all([...links.values()].map(link => link.close()))
    await pool.end()
    await Promise.all([postgres.stop(), redis.stop()])
  }
  try {
    await migrate({ postgres: postgres.url })
    await journal.install()
    await rows(REMEMBER)
    for (const slot of slots)
      for (const store of [postgres, redis])
        links.set(`${slot} ${store === postgres ? 'postgres' : 'redis'}`, await startProxy(store.url))
  } catch (error) {
    await close()
    throw error
  }

  return {
    postgres,
    redis,
    journal,
    link(slot, store) {
      const found = links.get(`${slot} ${store}`)
      if (!found) throw new Error(`${slot} has no link to ${store}`)
      return found
    },
    links: store => [...links].filter(([name]) => name.endsWith(` ${store}`)).map(([, link]) => link),
    rows,
    async command(name, ...args) {
      const client = new Redis(redis.url, { lazyConnect: true, maxRetriesPerRequest: 0, retryStrategy: null })
      client.on('error', () => undefined) // whoever asked is told
      try {
        await client.connect()
        return await client.call(name, ...args)
      } finally {
        client.disconnect()
      }
    },
    async remember() {
      const ms = (column: string) => `extract(epoch from ${column})::float8 * 1000`
      return {
        ended: await rows<EndedJob>(ENDED),
        left: await rows("select id, payload->>'key' as key, state from longshore.jobs"),
        groups: await rows(
          `select id, end_state as "endState", succeeded + failed + cancelled + dependency_failed as counted
           from longshore.groups`,
        ),
        runs: await journal.runs(),
        lives: await rows<Life>(
          `select id, name, lease_ms as "leaseMs", ${ms('dead_at')} as "deadAt", ${ms('expired_at')} as "expiredAt"
           from journal.lives`,
        ),
        capacities: await rows<Capacity>(
          `select task, key, capacity, ${ms('at')} * 1000 as at from journal.capacities order by no`,
        ),
      }
    },
    close,
  }
}
