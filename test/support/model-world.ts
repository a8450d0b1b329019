/**
 * The real side of the model test: one deployment on real stores, driven by hand, beside the model of it. Begins empty for each
 * history. Everything here throws where the stores and the model part.
 */
import { randomBytes } from 'node:crypto'
import { createProducer, defineTask, type Producer } from '../../src/index.ts'
import { constraintTags } from '../../src/job/constraints.ts'
import type { ReadyJob } from '../../src/job/ready-job.ts'
import { openPool, type Pool } from '../../src/postgres/connect.ts'
import { registerTasks } from '../../src/postgres/register-tasks.ts'
import { registerWorker } from '../../src/postgres/register-worker.ts'
import { type QueueIndex, queueIndex, type Spread } from '../../src/redis/queue-index.ts'
import type { ScriptRunner } from '../../src/redis/scripts.ts'
import type { TestClient, TestDatabase } from './database.ts'
import { beginAnew } from './forgetting.ts'
import { type HandRelay, handRelay } from './hand-relay.ts'
import { type Call, type HandWorker, handWorker } from './hand-worker.ts'
import { JobModel, MAX_ATTEMPTS, MAX_RESCUES, type NewModelJob } from './job-model.ts'
import { createJournal } from './journal.ts'
import type { TestRedis } from './redis.ts'

const QUEUE = 'default'
const retry = { maxAttempts: MAX_ATTEMPTS, maxRescues: MAX_RESCUES }
export const FREE = defineTask<number>({ name: 'free', retry })
export const tightTask = (all: number | undefined, perKey: number | undefined) =>
  defineTask<number>({
    name: 'tight',
    retry,
    ...(all ? { concurrency: all } : {}),
    ...(perKey ? { concurrencyPerKey: perKey } : {}),
  })
export const TIGHT = tightTask(2, 1)

export interface Facts {
  tasks: readonly string[]
  isSpecial: boolean
  hasGpu: boolean
}
export const ABLE: Facts = { tasks: ['free', 'tight'], isSpecial: true, hasGpu: true }
const FIRST: readonly Facts[] = [
  ABLE,
  { ...ABLE, isSpecial: false },
  { tasks: ['tight', 'free'], isSpecial: true, hasGpu: false },
]

export interface World {
  readonly model: JobModel
  readonly database: TestDatabase
  readonly pool: Pool
  readonly producer: Producer
  /** One for each place; whoever dies is replaced. */
  readonly workers: HandWorker[]
  /** Taken for dead, perhaps still with runs, and not aware of it. */
  readonly dead: HandWorker[]
  /** Begun and not sent, also of workers that have died since. */
  readonly calls: Call[]
  /** Somebody's open transaction, and what it has enqueued. */
  transaction: NewModelJob[] | undefined
  readonly client: TestClient
  /** Where jobs go through it. */
  redis: RedisSide | undefined
}

interface RedisSide {
  readonly spread: Spread
  readonly index: QueueIndex
  readonly client: TestRedis['client']
  relay: HandRelay
  /** Relays that led before and go on as if they did. */
  readonly former: HandRelay[]
  /** One relay has followed another, which may have been about to look after what dead workers took. */
  hasFollowed: boolean
  /** Told late. */
  readonly hints: ReadyJob[]
  lead(): Promise<HandRelay>
  /** What Redis says of its content. */
  root: { generation: string; epoch: number; seq: number } | undefined
  readonly url: string
}

export interface Ground {
  /** An empty deployment. Redis spreads jobs by this rule; `runner` has other scripts than the package's. */
  begin(spread?: Spread, runner?: ScriptRunner): Promise<World>
  close(): Promise<void>
}

/** What all histories of a file share. */
export async function modelGround(database: TestDatabase, redis?: TestRedis): Promise<Ground> {
  await createJournal(database).install()
  const pool = openPool(database.url, 4, () => undefined)
  // Without tasks: it would register them with its first job, and undo a change of limits.
  const producer = createProducer({ postgres: database.url })
  const client = await database.connect()
  let last: World | undefined
  let holders = 0

  const ground: Ground = {
    async begin(spread = { width: 0, strategy: 'least-queue' }, runner?: ScriptRunner) {
      if (last?.transaction) await client.query('rollback')
      await empty(database)
      await redis?.client.flushall()
      await registerTasks(pool, 'longshore', [FREE, TIGHT])
      const model = new JobModel()
      model.limits.set('tight', { all: 2, perKey: 1 })
      const world: World = {
        model,
        database,
        pool,
        producer,
        client,
        workers: [],
        dead: [],
        calls: [],
        transaction: undefined,
        redis: undefined,
      }
      last = world
      if (redis) {
        const deployment = randomBytes(6).toString('hex')
        await database.rows('update longshore.settings set deployment = $1', [deployment])
        const store = { ...redis.store, ...runner }
        const index = queueIndex(store, deployment, QUEUE)
        const lead = () =>
          handRelay({ pool, store, deployment, queue: QUEUE, holder: `relay ${holders++}`, spread })
        world.redis = {
          spread,
          index,
          client: redis.client,
          relay: await lead(),
          former: [],
          hasFollowed: false,
          hints: [],
          lead,
          root: undefined,
          url: redis.server.url,
        }
      }
      for (const facts of FIRST) world.workers.push(await bear(world, facts))
      await world.redis?.relay.catchUp()
      await hear(world)
      return world
    },
    async close() {
      await producer.close()
      await pool.end()
    },
  }
  return ground
}

const TABLES = [
  'jobs',
  'finished_jobs',
  'workers',
  'limits',
  'slot_groups',
  'lane_heads',
  'limit_waiters',
  'limit_uses',
  'lane_uses',
  'tasks',
  'outbox',
  'relayed',
  'groups',
  'edges',
  'workflows',
]
/** Lanes stay: the producer knows them. */
async function empty(database: TestDatabase): Promise<void> {
  const deletes = [...TABLES.map(table => `longshore.${table}`), 'journal.changes'].map(
    table => `delete from ${table};`,
  )
  await database.rows(
    `set session_replication_role = replica; ${deletes.join(' ')}
     update longshore.lanes set unused_since = null where unused_since is not null;
     set session_replication_role = origin`,
  )
  await beginAnew(database)
}

/** A worker begins its life. */
export async function bear(world: World, facts: Facts): Promise<HandWorker> {
  const properties: Record<string, string> = facts.hasGpu ? { gpu: 'a100' } : {}
  const told = {
    tasks: [...facts.tasks],
    tags: facts.isSpecial ? ['default', 'special'] : ['default'],
    constraintTags: constraintTags(properties),
  }
  const key = await registerWorker(world.pool, 'longshore', {
    name: 'by hand',
    queues: [QUEUE],
    properties,
    leaseMs: 3_600_000,
    ...told,
  })
  const { id } = key
  world.model.workers.set(id, { id, ...told })
  return handWorker({ pool: world.pool, key, facts: { id, ...told }, index: world.redis?.index })
}

/** These workers hear the relay beat. */
export async function hear(
  world: World,
  places: readonly number[] = [...world.workers.keys()],
): Promise<void> {
  const generation = world.redis?.relay.generation
  if (generation === undefined) return
  for (const place of places) {
    const worker = world.workers[place]
    if (worker && worker.registered !== generation) await worker.register(generation)
  }
}
