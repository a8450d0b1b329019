/**
 * The verb *audit*, over both stores: what is ready in Postgres against what Redis holds, both ways, and the reverse index within
 * Redis. Both stores move on while they are read, so only what is found several times in a row is told.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import type { Violation } from '../postgres/audit.ts'
import { readDeployment, readRelayed, UNBUILT_SEQ } from '../postgres/relay-reads.ts'
import { checkSchemaName, DEFAULT_SCHEMA, inSchema } from '../postgres/schema-name.ts'
import { findViolations, type IndexSnapshot, isBefore, readIndex } from '../redis/audit-index.ts'
import { sayAnew } from '../redis/messages.ts'
import { lowChannel, rootKey } from '../redis/names.ts'
import { openRedis, type RedisStore } from '../redis/open-redis.ts'
import type { RedisConfig } from '../redis/redis-config.ts'
import { BrokenIndexError } from '../redis/replies.ts'

interface AuditDispatchOptions {
  redis: RedisConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
  /** How often a violation must be seen before it is told. Default 5, a quarter of a second apart. */
  looks?: number
}

const BETWEEN_MS = 250
const CONNECT_MS = 5000
/** Ready jobs that are read in one statement. */
const PAGE = 5000

/** What is found in one queue. */
export type DispatchViolation = Violation & { queue: string }

/** What does not hold between Postgres and Redis (invariants 10 to 12). Nothing where jobs do not go through Redis. */
export async function auditDispatch(db: Queryable, options: AuditDispatchOptions): Promise<Violation[]> {
  const found = await auditQueues(db, options)
  return found.map(({ queue, ...violation }) => violation)
}

/** The same, by queue. */
export async function auditQueues(
  db: Queryable,
  options: AuditDispatchOptions,
): Promise<DispatchViolation[]> {
  const schema = checkSchemaName(options.schema ?? DEFAULT_SCHEMA)
  const { rows } = await db.query(inSchema(schema, 'select dispatch from longshore.settings'))
  if (rows[0]?.['dispatch'] !== 'redis') return []
  return withRedis(options.redis, async store => {
    let found = await look(db, store, schema)
    for (let looks = 1; found.size > 0 && looks < (options.looks ?? 5); looks++) {
      await pause(BETWEEN_MS)
      const again = await look(db, store, schema)
      found = new Map([...found].filter(([key]) => again.has(key)))
    }
    return [...found.values()]
  })
}

/** Asks the relay that leads to build a queue anew. Answers whether one has heard it. */
export async function askAnew(db: Queryable, schema: string, redis: RedisConfig, queue: string) {
  const deployment = await readDeployment(db, schema)
  const known = await readRelayed(db, schema, queue)
  return withRedis(redis, async store => {
    const text = sayAnew(rootKey(deployment, queue), known?.generation ?? '-')
    // In a cluster nobody can tell.
    return (await store.publish(lowChannel(deployment), text)) !== 0
  })
}

async function withRedis<T>(redis: RedisConfig, work: (store: RedisStore) => Promise<T>): Promise<T> {
  let lastError: Error | undefined
  const store = openRedis(redis, error => {
    lastError = error
  })
  try {
    for (let waited = 0; !store.isConnected(); waited += 10) {
      if (waited > CONNECT_MS) throw lastError ?? new Error('no Redis could be reached')
      await pause(10)
    }
    return await work(store)
  } finally {
    store.close()
  }
}

async function look(
  db: Queryable,
  store: RedisStore,
  schema: string,
): Promise<Map<string, DispatchViolation>> {
  const deployment = await readDeployment(db, schema)
  const found = new Map<string, DispatchViolation>()
  for (const queue of await readQueues(db, schema)) {
    const tell = (invariant: number, problem: string, jobId?: string) =>
      found.set(`${queue} ${invariant} ${jobId ?? problem}`, {
        queue,
        invariant,
        problem,
        ...(jobId ? { jobId: jobId as JobId } : {}),
      })
    try {
      const index = await readIndex(store, deployment, queue)
      if (!index) {
        tell(12, `queue ${queue} is not in Redis`)
        continue
      }
      for (const { problem, jobId } of findViolations(index)) tell(11, `queue ${queue}: ${problem}`, jobId)
      await compareTerms(db, schema, queue, index, tell)
      await compareJobs(db, schema, queue, index, tell)
    } catch (error) {
      if (!(error instanceof BrokenIndexError)) throw error
      tell(11, `queue ${queue}: ${error.message}`)
    }
  }
  return found
}

/** Queues that Redis has to hold: a worker serves them, or a relay has begun a generation of theirs that it has not ended. */
async function readQueues(db: Queryable, schema: string): Promise<string[]> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select queue from longshore.relayed
       union select unnest(w.queues) from longshore.workers w where w.dead_at is null`,
    ),
  )
  return rows.map(row => row['queue'] as string)
}

type Tell = (invariant: number, problem: string, jobId?: string) => unknown

interface ReadyRow {
  id: string
  lane: number
  score: string
  /** An outbox row names it: it is on its way. */
  isNoted: boolean
}

/** A page of the ready jobs of a queue, in the order of their ids. */
async function readReady(db: Queryable, schema: string, queue: string, after: string): Promise<ReadyRow[]> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select j.id::text as id, j.lane, j.score::text as score,
         j.id in (select unnest(o.jobs) from longshore.outbox o) as "isNoted"
       from longshore.jobs j join longshore.lanes l on l.id = j.lane
       where l.queue = $1 and j.state = 'ready' and j.id > $2 order by j.id limit ${PAGE}`,
    ),
    [queue, after],
  )
  return rows as unknown as ReadyRow[]
}

/** Redis is never behind what Postgres has forgotten, and nobody has led who was not elected. */
async function compareTerms(db: Queryable, schema: string, queue: string, index: IndexSnapshot, tell: Tell) {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select r.generation, r.seq, l.epoch
       from longshore.leader l left join longshore.relayed r on r.queue = $1`,
    ),
    [queue],
  )
  const generation = (rows[0]?.['generation'] ?? null) as string | null
  const [seq, epoch] = [Number(rows[0]?.['seq']), Number(rows[0]?.['epoch'])]
  if (generation !== index.generation)
    tell(12, `queue ${queue}: Redis holds generation ${index.generation}, Postgres says ${generation}`)
  else if (index.seq < seq && seq !== UNBUILT_SEQ)
    tell(12, `queue ${queue}: Redis is at step ${index.seq}, behind ${seq}`)
  if (Number(index.epoch) > epoch)
    tell(12, `queue ${queue}: Redis has seen epoch ${index.epoch}, Postgres is at ${epoch}`)
}

async function compareJobs(db: Queryable, schema: string, queue: string, index: IndexSnapshot, tell: Tell) {
  const ready = new Set<string>()
  let after = '00000000-0000-0000-0000-000000000000'
  for (let isLast = false; !isLast; ) {
    const jobs = await readReady(db, schema, queue, after)
    isLast = jobs.length < PAGE
    after = jobs.at(-1)?.id ?? after
    for (const job of jobs) {
      if (index.jobs.has(job.id)) ready.add(job.id)
      if (job.isNoted || index.jobs.get(job.id)?.lane === job.lane || index.taken.has(job.id)) continue
      const lane = index.lanes.get(job.lane)
      if (lane?.bound && !isBefore(job, lane.bound)) continue
      tell(10, `it is ready in lane ${job.lane} of ${queue}, and Redis does not know it`, job.id)
    }
  }
  const strange = [...index.jobs.keys()].filter(id => !ready.has(id))
  if (strange.length === 0) return
  const { rows: known } = await db.query(
    inSchema(
      schema,
      `select g.id::text as id from unnest($1::uuid[]) as g(id)
       where exists (select from longshore.jobs j where j.id = g.id and j.state = 'ready')
         or exists (select from longshore.outbox o where g.id = any (o.jobs))`,
    ),
    [strange],
  )
  const excused = new Set(known.map(row => row['id'] as string))
  for (const id of strange) {
    if (!excused.has(id)) tell(11, `Redis holds it in ${queue}, and it is not ready`, id)
  }
}
