/**
 * A deployment that grows old in minutes: rounds of work on real stores, and between them days that pass. Days pass by moving every stored
 * date back; then the duties of the leader that forget are called until they find nothing more.
 */
import { pino } from 'pino'
import { createProducer, createWorker, defineTask } from '../../src/index.ts'
import { auditPostgres } from '../../src/postgres/audit.ts'
import { openPool } from '../../src/postgres/connect.ts'
import { readDeployment, setDispatch } from '../../src/postgres/relay-reads.ts'
import { newSecret } from '../../src/postgres/secret.ts'
import { openRedis } from '../../src/redis/open-redis.ts'
import { auditDispatch } from '../../src/relay/audit-dispatch.ts'
import { type RelayLoop, startRelayLoop } from '../../src/relay/relay-loop.ts'
import { lead } from '../../src/upkeep/lead.ts'
import { asQueryable } from './at-rest.ts'
import type { TestDatabase } from './database.ts'
import { asAsked, forgetOn } from './forgetting.ts'
import { makeDay } from './make-day.ts'
import type { TestRedis } from './redis.ts'
import { eventually } from './signals.ts'

/** What comes anew with each round: tenants with a concurrency key, queue names, groups. */
export interface Round {
  readonly tenants: number
  readonly queues: number
  readonly groups: number
}

export interface Deployment {
  /** One round of work, whose names hold this number. Ends when all of it has run. */
  work(number: number, round: Round): Promise<void>
  /** So many days pass, and the leader does its duties. */
  pass(days: number): Promise<void>
  /** How much there is of what grew. */
  counts(): Promise<Record<string, number>>
  /** How many rows there have ever been. */
  made(): Promise<Record<'lanes' | 'limits' | 'workers', number>>
  violations(): Promise<unknown[]>
  close(): Promise<void>
}

/** Long enough for a queue that is not in use to be told from one whose workers restart. */
const UNUSED_MS = 300
/** Without those that hold hints of the last second. */
const TABLES = [
  ...['jobs', 'lanes', 'lane_uses', 'limits', 'slot_groups', 'lane_heads', 'limit_changes'],
  ...['tasks', 'relayed', 'queues', 'workers', 'past_workers', 'past_runs', 'awaited', 'outbox'],
  ...['finished_jobs', 'groups', 'edges', 'workflows', 'job_logs', 'job_progress'],
]

export async function oldDeployment(database: TestDatabase, redis?: TestRedis): Promise<Deployment> {
  const stores = { postgres: database.url, ...(redis ? { redis: redis.server.url } : {}) }
  const logger = pino({ level: 'silent' })
  const db = asQueryable(database)
  const pool = openPool(database.url, 5, () => undefined)
  const deployment = await readDeployment(db, 'longshore')
  const store = redis && openRedis(redis.server.url, () => undefined, { mayLoad: true })
  let loop: RelayLoop | undefined
  let terms = 0

  /** A relay that leads. The one before stops: relays are deployed too. */
  const leadAnew = async () => {
    if (!store) return
    await loop?.stop()
    const holder = { name: `relay ${terms++}`, secret: newSecret() }
    await database.rows("update longshore.leader set expires_at = '-infinity'")
    const epoch = await lead(pool, 'longshore', holder, 60_000, 'relay with Redis')
    await database.rows("update longshore.leader set expires_at = 'infinity'")
    const isNew = await setDispatch(pool, 'longshore', holder, 'redis')
    loop = startRelayLoop({
      pool,
      schema: 'longshore',
      store,
      deployment,
      holder,
      epoch: String(epoch),
      mayAdopt: !isNew,
      spreadOf: () => ({ width: 0, strategy: 'least-queue' }),
      sizes: { depth: 100, window: 4000 },
      unusedMs: UNUSED_MS,
      onLost: () => undefined,
      logger,
    })
  }
  await leadAnew()

  const standing = defineTask<number>({ name: 'standing' })
  const stays = createWorker({ ...stores, logger, handlers: [standing.handle(() => undefined)] })
  await stays.start()

  const isEmpty = async (table: string) =>
    (await database.rows(`select from longshore.${table} limit 1`)).length === 0
  const drained = async () => {
    await eventually('every job has ended', () => isEmpty('jobs'), 60_000)
    await eventually('the relay has read every row', () => isEmpty('outbox'), 60_000)
  }

  const work = async (number: number, { tenants, queues, groups }: Round) => {
    // Each deploy has another limit, and tasks of its own.
    const keyed = defineTask<number>({
      name: 'keyed',
      concurrency: 50 + (number % 3),
      concurrencyPerKey: 1 + (number % 2),
    })
    const daily = defineTask<number>({ name: `of deploy ${number}`, concurrency: 20 })
    const names = Array.from({ length: queues }, (_, n) => `queue ${number}-${n}`)
    const producer = createProducer({ ...stores, logger, tasks: [keyed, daily, standing] })
    const worker = createWorker({
      ...stores,
      logger,
      queues: ['default', ...names],
      maxConcurrentTasks: 20,
      handlers: [keyed.handle(() => undefined), daily.handle(() => undefined)],
    })
    try {
      await Promise.all([
        ...Array.from({ length: tenants }, (_, n) =>
          producer.enqueueMany(keyed, [1, 2], { concurrencyKey: `tenant ${number}-${n}` }),
        ),
        ...names.map(queue => producer.enqueue(daily, 0, { queue })),
        ...Array.from({ length: groups }, async () => {
          const group = producer.group()
          const first = group.add(daily, 0)
          for (let n = 1; n < 4; n++) group.add(daily, n, { after: first })
          await group.submit()
        }),
        producer.enqueueMany(daily, [1, 2, 3], { workflow: `workflow ${number}` }),
      ])
      await worker.start()
      const last = await producer.enqueue(standing, number)
      await producer.waitFor(last, { timeout: '30s' })
      await drained()
    } finally {
      await worker.stop()
      await producer.close()
    }
    await eventually('groups have ended', async () => {
      const open = await database.rows<{ id: string }>(
        'select id from longshore.groups where finished_at is null',
      )
      await database.rows('select longshore.close_groups($1)', [open.map(({ id }) => id)])
      return open.length === 0
    })
    await drained()
  }

  /** Calls a duty until it says that it has done all. */
  const untilDone = async (duty: string, isDone: string) => {
    for (let calls = 0; calls < 10_000; calls++) {
      const [row] = await database.rows<{ done: boolean }>(
        `select (${isDone}) as done from longshore.${duty} f`,
      )
      if (row?.done) return
    }
    throw new Error(`${duty} does not come to an end`)
  }
  const forgetLimits = async () => {
    await database.rows(
      'update longshore.limit_looks set done_to = 0, idle_since = pg_snapshot_xmax(pg_current_snapshot())',
    )
    await untilDone('forget_limits(0)', 'f.is_done')
    await database.rows('select longshore.forget_heads(0)')
  }
  const forgetLanes = () =>
    eventually('a round of forgetting has ended', async () => {
      const { step } = await forgetOn(asAsked(database))
      return step === 'resting'
    })

  const moveDates = async (days: number) => {
    const back = (table: string, ...columns: string[]) =>
      database.rows(
        `update longshore.${table} set ${columns.map(column => `${column} = ${column} - $1 * interval '1 day'`).join(', ')}`,
        [days],
      )
    await back('lanes', 'unused_since')
    await back('tasks', 'registered_at')
    await back('groups', 'created_at', 'finished_at')
    await back('past_workers', 'ended_at')
    await back('past_runs', 'ended_at')
    await back('awaited', 'expires_at')
    await back('forgetting', 'next_at', 'began_at')
    // The days of the history get the partitions that they would have had.
    const kept = await database.rows<{ day: string }>(
      `select distinct (keep_until - $1::int)::text as day from longshore.finished_jobs`,
      [days],
    )
    for (const { day } of kept) {
      const name = `longshore.finished_jobs_${day.replaceAll('-', '')}`
      const [known] = await database.rows<{ found: boolean }>('select to_regclass($1) is not null as found', [
        name,
      ])
      if (!known?.found) await makeDay(database, day)
    }
    await database.rows(
      `update longshore.finished_jobs set keep_until = keep_until - $1::int, created_at = created_at - $1 * interval '1 day',
         started_at = started_at - $1 * interval '1 day', finished_at = finished_at - $1 * interval '1 day'`,
      [days],
    )
    await database.rows('delete from longshore.history_passes')
  }

  const pass = async (days: number) => {
    await forgetLanes()
    await moveDates(days)
    await untilDone('forget_history()', 'f.is_done')
    await untilDone('forget_expired()', 'not f.has_more')
    await forgetLimits()
    // The lanes of keys, those above them, then the names that are left without any.
    for (let rounds = 0; rounds < 3; rounds++) await forgetLanes()
    await drained()
    await leadAnew()
  }

  const counts = async () => {
    const found: Record<string, number> = {}
    for (const table of TABLES) {
      const [row] = await database.rows<{ rows: number }>(
        `select count(*)::int as rows from longshore.${table}`,
      )
      found[table] = row?.rows ?? 0
    }
    const [partitions] = await database.rows<{ rows: number }>(
      "select count(*)::int as rows from pg_inherits i where i.inhparent = 'longshore.finished_jobs'::regclass",
    )
    found['partitions'] = partitions?.rows ?? 0
    if (redis) {
      const keys = await redis.client.keys(`longshore:${deployment}:*`)
      found['Redis keys'] = keys.length
      for (const key of keys) {
        const type = await redis.client.type(key)
        const entries =
          type === 'hash'
            ? await redis.client.hlen(key)
            : type === 'set'
              ? await redis.client.scard(key)
              : await redis.client.zcard(key)
        found['Redis entries'] = (found['Redis entries'] ?? 0) + entries
      }
      const { queues = 0, lanes = 0, limits = 0 } = loop?.known ?? {}
      Object.assign(found, { 'relay: queues': queues, 'relay: lanes': lanes, 'relay: limits': limits })
    }
    return found
  }

  return {
    work,
    pass,
    counts,
    async made() {
      const last = async (table: string) => {
        const [row] = await database.rows<{ last: number }>(
          `select coalesce(pg_sequence_last_value(pg_get_serial_sequence('longshore.${table}', 'id')::regclass), 0)::int as last`,
        )
        return row?.last ?? 0
      }
      return { lanes: await last('lanes'), limits: await last('limits'), workers: await last('workers') }
    },
    async violations() {
      return [
        ...(await auditPostgres(db)),
        ...(redis ? await auditDispatch(db, { redis: redis.server.url }) : []),
      ]
    },
    async close() {
      await stays.stop()
      await loop?.stop()
      store?.close()
      await pool.end()
    },
  }
}
