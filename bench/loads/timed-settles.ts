/** Owns the timing of settles: connections that each settle some jobs and claim the next ones, at a steady pace, as workers do. */
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { storeNumberedJobs } from '../jobs/numbered-jobs.ts'
import type { Database } from '../stores/database.ts'

const CONNECTIONS = 4
const BATCH = 5
const PAUSE_MS = 5
const REFILL = 5000
/** How often waits for locks are looked at. */
const LOOK_MS = 5
/** Until connections have planned their statements. */
const WARM_MS = 2000

/** How long calls have waited for a lock that wait at this moment. */
const LOCK_MS = `
  select coalesce(max(extract(epoch from clock_timestamp() - l.waitstart)) * 1000, 0)::float8 as ms
  from pg_locks l join pg_stat_activity a using (pid)
  where not l.granted and a.datname = current_database() and a.application_name = 'settles'`

const CALL = 'select ids, lease_tokens from longshore.settle_and_claim($1, $2, $3, null, null, $4)'

export interface TimedSettles {
  end(): Promise<{
    /** How long each call took, from the client's side. */
    timesMs: number[]
    /** The longest that one of them waited for a lock, as Postgres says. */
    longestLockMs: number
  }>
}

export async function beginSettles(database: Database): Promise<TimedSettles> {
  const timesMs: number[] = []
  let longestLockMs = 0
  let isOn = true
  let filling: Promise<void> | undefined
  const refill = () => {
    filling ??= storeNumberedJobs(database, REFILL).finally(() => {
      filling = undefined
    })
    return filling
  }
  await refill()
  const [worker] = await database.query(`
    insert into longshore.workers (name, queues, tasks, tags, constraint_tags, expires_at)
    values ('timed', '{default}', '{noop}', '{default}', '{c:}', now() + interval '1 day') returning id`)

  const settle = async () => {
    const client = new pg.Client({ connectionString: database.url, application_name: 'settles' })
    await client.connect()
    try {
      for (let ids: string[] = [], tokens: string[] = []; isOn; await pause(PAUSE_MS)) {
        const from = performance.now()
        const { rows } = await client.query({
          name: 'settle',
          text: CALL,
          values: [worker?.['id'], ids, tokens, BATCH],
        })
        // A call that settles nothing is no settle.
        if (ids.length > 0) timesMs.push(performance.now() - from)
        const claimed = rows[0] as { ids: string | null; lease_tokens: string | null } | undefined
        ids = claimed?.ids?.split(',') ?? []
        tokens = (claimed?.lease_tokens?.split(',') ?? []).flatMap(run => {
          const [token = '', count = '1'] = run.split('*')
          return Array<string>(Number(count)).fill(token)
        })
        if (ids.length === 0) await refill()
      }
    } finally {
      await client.end()
    }
  }
  const watchLocks = async () => {
    const client = new pg.Client(database.url)
    await client.connect()
    try {
      for (; isOn; await pause(LOOK_MS)) {
        const { rows } = await client.query({ name: 'locks', text: LOCK_MS })
        longestLockMs = Math.max(longestLockMs, rows[0].ms)
      }
    } finally {
      await client.end()
    }
  }
  const settling = Promise.all([...Array.from({ length: CONNECTIONS }, settle), watchLocks()])
  await Promise.race([pause(WARM_MS), settling])
  timesMs.length = 0
  longestLockMs = 0
  return {
    async end() {
      isOn = false
      await settling
      return { timesMs, longestLockMs }
    },
  }
}
