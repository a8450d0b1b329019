/**
 * Owns the past of a deployment, made by SQL: concurrency keys, queue names, days of history with groups, tasks of earlier
 * deploys and workers that came and went. Nothing of it is in use any more. Where there is a relay, it learns of every key and queue as
 * it would have: by a job that was ready and is not.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Setting } from '../measure/setting.ts'
import type { Database } from '../stores/database.ts'

export interface Past {
  readonly keys: number
  readonly queues: number
  /** Ended jobs, over `PAST_DAYS`; a third of them belong to groups of `GROUP_JOBS`. */
  readonly ended: number
}

const PAST_DAYS = 30
const GROUP_JOBS = 10
/** Lanes that the relay learns of at a time; of queues fewer, since every queue that is in use hears of all jobs that are gone. */
const KEYS_AT_ONCE = 2000
const QUEUES_AT_ONCE = 200
const LIMIT_MS = 1_200_000
const DAY_MS = 86_400_000

export async function storePast(setting: Setting, task: string, past: Past): Promise<void> {
  const { database } = setting
  await storeNames(database, task, past)
  await storeDays(database, task, past)
  await storeWorkers(database, past)
  if (setting.relay) await letRelayLearn(setting)
  await database.query('vacuum analyze')
}

/** Lanes and limits of keys, queues with a lane each, tasks that no process has any more. */
async function storeNames(database: Database, task: string, { keys, queues }: Past): Promise<void> {
  await database.query(`
    insert into longshore.tasks (name, queue, tag, max_attempts, max_rescues)
    select 'earlier-' || n, 'default', 'default', 3, 10 from generate_series(1, ${queues}) n`)
  await database.query(`
    insert into longshore.lanes (queue, task, tag, constraint_tag)
    select 'queue-' || n, '${task}', 'default', 'c:' from generate_series(1, ${queues}) n`)
  await database.query(`
    with kind as (select longshore.find_lane('default', '${task}', 'default', 'c:') as id),
      lane as (
        insert into longshore.lanes (queue, task, tag, constraint_tag, concurrency_key, parent)
        select 'default', '${task}', 'default', 'c:', 'tenant-' || n, k.id from generate_series(1, ${keys}) n, kind k
        returning concurrency_key
      ),
      made as (
        insert into longshore.limits (task, key, capacity)
        select '${task}', l.concurrency_key, t.concurrency_per_key
        from lane l join longshore.tasks t on t.name = '${task}' where t.concurrency_per_key is not null
        returning id, capacity
      )
    insert into longshore.slot_groups (limit_id, number, capacity)
    select m.id, s.number, s.capacity from made m cross join lateral longshore.spread_slots(m.capacity) s`)
}

/** Ended jobs and groups, the same number on each day, all of which is kept. */
async function storeDays(database: Database, task: string, { ended }: Past): Promise<void> {
  await database.query(`update longshore.settings set retention_days = ${PAST_DAYS}`)
  const perDay = Math.ceil(ended / PAST_DAYS)
  const groups = Math.floor(perDay / 3 / GROUP_JOBS)
  const [lane] = await database.query(
    `select longshore.find_lane('default', '${task}', 'default', 'c:') as id`,
  )
  for (let ago = 1; ago <= PAST_DAYS; ago++) {
    const at = `to_timestamp(${(Date.now() - ago * DAY_MS) / 1000})`
    await database.query(`
      with grouped as materialized (
        select longshore.new_id() as id, n from generate_series(0, ${groups - 1}) n
      ), made as (
        insert into longshore.groups (id, end_state, created_at, finished_at, succeeded)
        select g.id, 'succeeded', ${at}, ${at}, ${GROUP_JOBS} from grouped g
      ), job as materialized (
        select longshore.new_id() as id, s.n, g.id as group_id
        from generate_series(0, ${perDay - 1}) as s(n) left join grouped g on g.n = s.n / ${GROUP_JOBS}
      ), edge as (
        insert into longshore.edges (parent, child)
        select p.id, c.id from job p join job c on c.n = p.n + 1 and c.group_id = p.group_id
      )
      insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane, worker_id, keep_until,
        state, attempts, max_attempts, group_id, payload)
      select j.id, longshore.score(0, ${at}), 1, ${at}, ${at}, ${at}, ${lane?.['id']}, 1,
        (${at} at time zone 'utc')::date + ${PAST_DAYS}, 'succeeded', 1, 3, j.group_id, '{"tenant": "acme-emea-01"}'
      from job j`)
  }
}

/** Workers that have left, what they ran last, and producers that waited. */
async function storeWorkers(database: Database, { queues }: Past): Promise<void> {
  await database.query(`
    insert into longshore.past_workers (id, ended_at)
    select -n, now() - n % 86400 * interval '1 second' from generate_series(1, ${queues}) n`)
  await database.query(`
    insert into longshore.past_runs (job_id, lease_token, worker_id, ended_at)
    select longshore.new_id(), n, -n, now() - n % 86400 * interval '1 second' from generate_series(1, ${queues}) n`)
  await database.query(`
    insert into longshore.awaited (job_id, waiter, expires_at)
    select longshore.new_id(), 'gone', now() - interval '1 day' from generate_series(1, ${queues}) n`)
}

const outboxIsEmpty = async (database: Database) => {
  const [row] = await database.query('select count(*)::int as n from longshore.outbox')
  return row?.['n'] === 0
}

async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  const giveUpAt = performance.now() + LIMIT_MS
  while (!(await isSo())) {
    if (performance.now() > giveUpAt) throw new Error(`${what}: not in ${LIMIT_MS / 1000} s`)
    await pause(200)
  }
}

/** A ready job in each lane until the relay has read it in; then it is cancelled. Some lanes at a time, as they came in those days. */
async function letRelayLearn({ database, redis }: Setting): Promise<void> {
  if (!redis) throw new Error('a relay without a Redis learns nothing')
  const note = () =>
    database.query('insert into longshore.outbox (jobs) select array_agg(j.id) from longshore.jobs j')
  const isKnown = async (lanes: readonly number[]) => {
    const found = new Set<string>()
    for await (const keys of redis.client.scanStream({ match: '*:lane-facts:*', count: 10_000 }))
      for (const key of keys as string[]) found.add(key.slice(key.lastIndexOf(':') + 1))
    return lanes.every(lane => found.has(String(lane)))
  }
  for (const [which, most] of [
    [`l.concurrency_key = ''`, QUEUES_AT_ONCE],
    [`l.concurrency_key <> ''`, KEYS_AT_ONCE],
  ] as const)
    await learn(which, most)

  async function learn(which: string, most: number): Promise<void> {
    for (let after = 0; ; ) {
      const rows = await database.query(`
      with made as (
        insert into longshore.jobs (id, lane, score, state, max_attempts, payload)
        select longshore.new_id(), l.id, longshore.score(0, now()), 'ready', 3, '{"past": true}'
        from longshore.lanes l where ${which} and l.id > ${after} order by l.id limit ${most}
        returning lane
      ) select lane from made`)
      const lanes = rows.map(row => Number(row['lane']))
      if (lanes.length === 0) return
      await note()
      await until('the relay has read in some lanes', () => isKnown(lanes))
      await note()
      await database.query('delete from longshore.jobs')
      await until('the relay has heard of the end of the jobs', () => outboxIsEmpty(database))
      after = Math.max(...lanes)
    }
  }
}

/**
 * As the leader would in the days that follow: every duty that forgets what is not used, until there is nothing left for it. Those that
 * this version does not have are left out.
 */
export async function forgetPast(setting: Setting): Promise<void> {
  const { database, redis } = setting
  const rows = await database.query(
    `select proname as name from pg_proc where pronamespace = 'longshore'::regnamespace`,
  )
  const duties = new Set(rows.map(row => row['name']))
  /** Calls it until it says that it has done all. */
  const call = async (duty: string, isDone: string) => {
    if (!duties.has(duty.slice(0, duty.indexOf('(')))) return
    await until(
      duty,
      async () =>
        (await database.query(`select (${isDone}) as done from longshore.${duty} f`))[0]?.['done'] === true,
    )
  }
  const round = async () => {
    await database.query(`update longshore.forgetting set next_at = now() where step = 'resting'`)
    await call('forget_lanes()', `f.step = 'resting'`)
    await database.query(
      `update longshore.lanes set unused_since = unused_since - ${2 * PAST_DAYS} * interval '1 day' where unused_since is not null`,
    )
  }
  // A limit that has not changed since the pass before.
  for (let pass = 0; pass < 3; pass++) await call('forget_limits(p_idle_ms => 0)', 'f.is_done')
  // Marked in the first round, deleted in the second; then what stood above them.
  if (duties.has('forget_lanes')) for (let rounds = 0; rounds < 4; rounds++) await round()
  await call('forget_heads(0)', 'f is null')
  if (redis)
    await until('Redis has forgotten the queues', async () => {
      for await (const keys of redis.client.scanStream({ match: 'longshore:*{queue-*', count: 10_000 }))
        if (keys.length > 0) return false
      return true
    })
  await database.query('vacuum analyze')
}
