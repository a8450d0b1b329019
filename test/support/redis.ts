/** A Redis of its own for a test file, and an own deployment in it for each test. */

import { randomBytes } from 'node:crypto'
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest'
import { type Store, startRedis } from '../../src/dev/index.ts'
import type { JobId } from '../../src/job/job-id.ts'
import type { LaneFacts, ReadyJob } from '../../src/job/ready-job.ts'
import { auditIndex, type IndexSnapshot, readIndex } from '../../src/redis/audit-index.ts'
import { connectRedis, type RedisClient } from '../../src/redis/connect-redis.ts'
import { openRedis, type RedisStore } from '../../src/redis/open-redis.ts'
import {
  type Place,
  type QueueIndex,
  queueIndex,
  type Spread,
  START,
  type Step,
} from '../../src/redis/queue-index.ts'
import type { ScriptRunner } from '../../src/redis/scripts.ts'
import { eventually } from './signals.ts'

export interface TestRedis {
  readonly server: Store
  readonly store: RedisStore
  /** A plain connection, for settings and for looking. */
  readonly client: RedisClient
  /** Of this test. */
  readonly deployment: string
}

/** Call at the top of a file. */
export function useRedis(): TestRedis {
  let server: Store
  let store: RedisStore
  let client: RedisClient
  let deployment: string

  beforeAll(async () => {
    server = await startRedis({ own: true })
    client = await connectRedis(server.url)
    store = openRedis(server.url, () => undefined, { mayLoad: true })
    await eventually('there is a connection', async () => store.isConnected())
  })
  beforeEach(() => {
    deployment = `test-${randomBytes(6).toString('hex')}`
  })
  afterAll(async () => {
    store?.close()
    client?.disconnect()
    await server?.stop()
  })

  return {
    get server() {
      return server
    },
    get store() {
      return store
    },
    get client() {
      return client
    },
    get deployment() {
      return deployment
    },
  }
}

export const QUEUE = 'some queue'
const GENERATION = 'g1'

/** One queue's index as a relay of one test sees it: counts its own steps. */
export interface TestQueue extends QueueIndex {
  step(): Step
  /** Makes a lane known that holds these jobs; all of it has been read. */
  lane(lane: number, facts?: Partial<LaneFacts>, jobs?: readonly ReadyJob[]): Promise<void>
  /** A worker that may run everything that `lane` makes, unless told otherwise. */
  worker(worker: number, facts?: Partial<WorkerFacts>): Promise<void>
  placeJobs(jobs: readonly ReadyJob[], how?: 'relay' | 'audit'): Promise<{ bells: number; placed: number }>
  takeIds(worker: number, limit: number, options?: TakeOptions): Promise<string[]>
  snapshot(): Promise<IndexSnapshot>
  /** Ids of what stands in a worker's queue, best first. */
  queueOf(worker: number): Promise<string[]>
  laneOf(lane: number): Promise<string[]>
  /** Every key of the deployment with its content. */
  dump(): Promise<Record<string, unknown>>
}

export interface WorkerFacts {
  tasks: string[]
  tags: string[]
  constraintTags: string[]
}

interface TakeOptions {
  running?: number
  freed?: ReadonlyMap<number, number>
  done?: readonly string[]
}

export interface QueueOptions extends Partial<Spread> {
  depth?: number
  window?: number
  runner?: ScriptRunner
  /** Of the leader. */
  epoch?: string
  generation?: string
}

/** Jobs of these tests have short names. */
export const isName = (text: string) => text !== ''

/** A job with a short name: ids compare as the names do. */
export const job = (id: string, score: number | string = 1, lane = 1, leaseToken = '0'): ReadyJob => ({
  id: id as JobId,
  lane,
  score: String(score),
  leaseToken,
})

export const laneFacts = (lane: number, facts: Partial<LaneFacts> = {}): LaneFacts => {
  const { limit = null, keyLimit = null, kind = lane } = facts
  return {
    lane,
    queue: QUEUE,
    kind,
    task: 'task',
    tag: 'default',
    constraintTag: 'c:',
    isPlain: limit === null,
    hasLimits: limit !== null || keyLimit !== null,
    limit,
    free: limit === null ? null : '1',
    keyLimit,
    keyFree: keyLimit === null ? null : '1',
    ...facts,
  }
}

const EVERYTHING: WorkerFacts = { tasks: ['task'], tags: ['default'], constraintTags: ['c:'] }

/** Starts a generation. After the test, what is left must keep the rules. */
export function useQueues(redis: TestRedis): (options?: QueueOptions) => Promise<TestQueue> {
  let isUsed = false
  afterEach(async () => {
    if (!isUsed) return
    isUsed = false
    expect(await auditIndex(redis.store, redis.deployment, QUEUE, isName)).toEqual([])
  })
  return options => {
    isUsed = true
    return openQueue(redis, redis.deployment, options)
  }
}

/** Without the audit at the end. */
export async function openQueue(
  redis: Pick<TestRedis, 'store' | 'client'>,
  deployment: string,
  options: QueueOptions = {},
): Promise<TestQueue> {
  const { width = 0, strategy = 'least-queue', depth = 100, window = 100, runner = redis.store } = options
  const { epoch = '1', generation = GENERATION } = options
  const index = queueIndex(runner, deployment, QUEUE, isName)
  let seq = 0
  const step = () => ({ epoch, generation, seq: ++seq })
  await index.beginGeneration(epoch, generation, { width, strategy }, { depth, window })

  const snapshot = async () => {
    const found = await readIndex(redis.store, deployment, QUEUE, isName)
    if (!found) throw new Error('no generation has begun')
    return found
  }
  const ids = (places: readonly Place[] | undefined) => (places ?? []).map(({ id }) => id)
  const mustBeOk = (code: string) => {
    if (code !== 'OK') throw new Error(`the step was answered with ${code}`)
  }
  return {
    ...index,
    step,
    async lane(lane, facts = {}, jobs = []) {
      mustBeOk((await index.refill(step(), laneFacts(lane, facts), START, null, jobs)).code)
    },
    async worker(worker, facts = {}) {
      mustBeOk(await index.register(generation, worker, { ...EVERYTHING, ...facts }))
    },
    async placeJobs(jobs, how = 'relay') {
      const { code, ...rest } = await index.place(step(), how, jobs)
      mustBeOk(code)
      return rest
    },
    async takeIds(worker, limit, { running = 0, freed = new Map(), done = [] } = {}) {
      const taken = await index.take({ generation, worker, limit, running, freed, done })
      mustBeOk(taken.code)
      return taken.ids
    },
    snapshot,
    queueOf: async worker => ids((await snapshot()).workers.get(worker)?.queue),
    laneOf: async lane => ids((await snapshot()).lanes.get(lane)?.jobs),
    dump: () => dumpKeys(redis.client, `longshore:${deployment}:*`),
  }
}

async function dumpKeys(client: RedisClient, pattern: string): Promise<Record<string, unknown>> {
  const keys = (await client.keys(pattern)).sort()
  const content: Record<string, unknown> = {}
  for (const key of keys) {
    const type = await client.type(key)
    if (type === 'hash') content[key] = await client.hgetall(key)
    else if (type === 'zset') content[key] = await client.zrange(key, '0', '-1', 'WITHSCORES')
    else if (type === 'set') content[key] = (await client.smembers(key)).sort()
    else content[key] = type
  }
  return content
}
