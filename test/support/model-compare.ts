/** Compares the stores with the model of them, job by job, and asks the audits. */
import type { Violation } from '../../src/index.ts'
import { auditPostgres } from '../../src/postgres/audit.ts'
import { auditDispatch } from '../../src/relay/audit-dispatch.ts'
import { isEnded, type JobModel, type ModelJob } from './job-model.ts'
import { createJournal } from './journal.ts'
import type { World } from './model-world.ts'

export interface JobRow {
  id: string
  state: string
  attempts: number
  rescues: number
  token: string
  score: string
  lane: number
  worker: number | null
  pending: number
  facts: string
}

/** In front of the tags of lanes that hold only what has ended, see the command `forget`. */
export const PAST = 'past '

const ROWS = `
  select j.*, concat_ws(' ', l.task, replace(l.tag, '${PAST}', ''), l.constraint_tag, l.concurrency_key) as facts
  from (
    select id, state::text, attempts, rescues, lease_token::text as token, score::text, lane, worker_id as worker,
      coalesce(pending, 0) as pending
    from longshore.jobs
    union all
    select id, state::text, attempts, rescues, lease_token::text, score::text, lane, null, 0 from longshore.finished_jobs
  ) j join longshore.lanes l on l.id = j.lane`

/** Reads every job, and tells the model where each stands that it did not know. */
export async function readJobRows({ database, model }: World): Promise<JobRow[]> {
  const rows = await database.rows<JobRow>(ROWS)
  for (const row of rows) {
    const job = model.jobs.get(row.id)
    if (!job || (job.score !== undefined && job.lane !== undefined)) continue
    job.score ??= BigInt(row.score)
    job.lane ??= row.lane
    same(`the priority of job ${job.id}`, 2047 - Number(job.score >> 42n), job.priority)
    const isDue = Number(job.score & ((1n << 42n) - 1n)) <= Date.now() + 60_000
    if (!isEnded(job)) same(`whether job ${job.id} is due`, isDue, !job.isDelayed)
  }
  return rows
}

/** Throws at the first difference. */
export async function compare(world: World): Promise<void> {
  const { model, database } = world
  const rows = await readJobRows(world)
  const found = new Map(rows.map(row => [row.id, row]))
  same('the number of jobs', found.size, rows.length)
  for (const job of model.jobs.values()) compareJob(model, job, found.get(job.id))
  for (const { id } of rows) if (!model.jobs.has(id)) throw new Error(`nobody has enqueued job ${id}`)
  const groups = await database.rows<{ id: string; end: string | null }>(
    'select id, end_state as end from longshore.groups',
  )
  for (const { id, end } of groups)
    same(`the end of group ${id}`, end ?? undefined, model.groups.get(id)?.end)
  await compareTerms(world)
}

function compareJob(model: JobModel, job: ModelJob, row: JobRow | undefined): void {
  if (row?.state !== job.state) throw new Error(`job ${job.id} is ${row?.state}, and should be ${job.state}`)
  same(`the token of job ${job.id}`, row.token, job.token)
  same(`the score of job ${job.id}`, row.score, String(job.score))
  const facts = [job.task, job.tag, job.constraintTag, job.key ?? ''].join(' ')
  same(`the lane of job ${job.id}`, [row.lane, row.facts], [job.lane, facts])
  same(`the worker of job ${job.id}`, row.worker, job.state === 'running' ? job.worker : null)
  const counts = [job.attempts, job.rescues, isEnded(job) ? 0 : model.pending(job)]
  // How often a job that was taken for poison ran is not promised.
  if (!isEnded(job) || job.state === 'succeeded')
    same(`attempts, rescues and pending of job ${job.id}`, [row.attempts, row.rescues, row.pending], counts)
}

/** Within a generation the relay's epoch and step never fall. */
async function compareTerms({ redis }: World): Promise<void> {
  if (!redis) return
  const fields = await redis.client.hmget(redis.index.root, 'generation', 'epoch', 'seq')
  const [generation, epoch, seq] = fields
  const now = generation ? { generation, epoch: Number(epoch), seq: Number(seq) } : undefined
  const { root: was } = redis
  redis.root = now
  if (!now || now.generation !== was?.generation) return
  if (now.epoch < was.epoch || now.seq < was.seq)
    throw new Error(`12: Redis was at ${JSON.stringify(was)}, and is at ${JSON.stringify(now)}`)
}

/** Every invariant that can be asked of the stores at this moment: between them, in Postgres, and over all that has happened. */
export async function auditAll(world: World, when: 'at rest' | 'at the end' | 'drained'): Promise<void> {
  const { database, model, redis } = world
  const db = {
    query: async (text: string, values?: unknown[]) => ({ rows: await database.rows(text, values) }),
  }
  const isDrained = when === 'drained'
  const found: Violation[] = redis ? await auditDispatch(db, { redis: redis.url, looks: 1 }) : []
  if (when !== 'at rest')
    found.push(...(await auditPostgres(db, 'longshore', { isDrained, enqueued: [...model.jobs.keys()] })))
  if (isDrained)
    found.push(...(await createJournal(database).auditJournal()), ...(await findLeftovers(world)))
  // What was claimed past Redis, or hinted too late, is forgotten there when somebody takes it in vain, or by the relay's audit.
  const isExpected = ({ problem }: Violation) => !isDrained && problem.endsWith('and it is not ready')
  const told = found
    .filter(violation => !isExpected(violation))
    .map(({ invariant, problem, jobId }) => `${invariant}: ${jobId ?? ''} ${problem}`)
  if (told.length > 0) throw new Error(`the audit says\n${told.join('\n')}`)
}

/** Where nothing is left to do, nothing is left that grows with every job (15). */
async function findLeftovers({ database, redis }: World): Promise<Violation[]> {
  const counts = await database.rows<{ name: string; rows: number }>(
    `select 'outbox' as name, count(*)::int as rows from longshore.outbox
     union all select 'workflows', count(*)::int from longshore.workflows
     union all select 'slots in use', coalesce(sum(used), 0)::int from longshore.slot_groups`,
  )
  if (redis) {
    const key = (name: string) => `${redis.index.root}:${redis.root?.generation}:${name}`
    // Each table has one entry from the beginning.
    for (const name of ['jobs', 'held', 'taken'])
      counts.push({ name: `${name} in Redis`, rows: (await redis.client.hlen(key(name))) - 1 })
  }
  return counts
    .filter(({ rows }) => rows !== 0)
    .map(({ name, rows }) => ({ invariant: 15, problem: `${rows} left of: ${name}` }))
}

export function same(what: string, found: unknown, wanted: unknown): void {
  const [is, should] = [JSON.stringify(found), JSON.stringify(wanted)]
  if (is !== should) throw new Error(`${what}: ${is}, and should be ${should}`)
}
