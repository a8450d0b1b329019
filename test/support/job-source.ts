/** A job source of a worker that is only a row, and the least loop around it: what it hands over, and when it says that there may be jobs. */
import { constraintTags } from '../../src/job/constraints.ts'
import { openPool, type Pool } from '../../src/postgres/connect.ts'
import { openListener } from '../../src/postgres/listener.ts'
import { registerWorker, type WorkerFacts } from '../../src/postgres/register-worker.ts'
import { readDeployment } from '../../src/postgres/relay-reads.ts'
import { channelName } from '../../src/postgres/schema-name.ts'
import type { WorkerKey } from '../../src/postgres/secret.ts'
import type { ClaimedJob, Outcome } from '../../src/postgres/settle-and-claim.ts'
import { openRedis } from '../../src/redis/open-redis.ts'
import { createLogger } from '../../src/runtime/logger.ts'
import { createDirectSource } from '../../src/worker/direct-source.ts'
import type { Answer, JobSource } from '../../src/worker/job-source.ts'
import { createRedisSource } from '../../src/worker/redis-source.ts'
import type { TestDatabase } from './database.ts'
import type { Deployment } from './deployment.ts'
import { counter, eventually } from './signals.ts'

export interface SourceInTest {
  readonly source: JobSource
  readonly worker: WorkerKey
  readonly facts: WorkerFacts
  readonly pool: Pool
  /** Calls of `look` so far. */
  readonly looks: ReturnType<typeof counter>
  /** Exchanges until that many jobs have been handed over in all. */
  claim(jobs: number, limit?: number): Promise<ClaimedJob[]>
  settle(...outcomes: Outcome[]): Promise<Answer>
  /** Goes idle as a worker does: looks whenever it is told to, and says that it idles when nothing came. Resolves with the first job. */
  idleUntilJob(): Promise<ClaimedJob>
  close(): Promise<void>
}

/** Never reached: only what wakes a worker counts. */
const POLL_MS = 600_000
const LEASE_MS = 600_000

export async function openSource(
  database: TestDatabase,
  deployment: Deployment,
  given: Partial<WorkerFacts> & Pick<WorkerFacts, 'tasks'>,
): Promise<SourceInTest> {
  await deployment.needRelay()
  const pool = openPool(database.urlOf('worker'), 3, () => undefined)
  const facts: WorkerFacts = {
    name: 'a source in a test',
    queues: ['default'],
    tags: ['default'],
    properties: {},
    constraintTags: constraintTags(given.properties ?? {}),
    leaseMs: LEASE_MS,
    ...given,
  }
  const worker = await registerWorker(pool, 'longshore', facts)
  const logger = createLogger('test', 'silent')
  const looks = counter()
  let onLook: () => void = () => undefined
  const look = () => {
    looks.add()
    onLook()
  }
  const direct = createDirectSource({
    pool,
    schema: 'longshore',
    worker,
    pollIntervalMs: POLL_MS,
    look,
    onGroups: () => undefined,
    logger,
  })
  const redis = deployment.redisOf('worker')
  const listener = await openListener({
    postgres: database.urlOf('worker'),
    channels: redis ? [] : [channelName('longshore', `worker_${worker.id}`)],
    onNotify: (_, text) => direct.onRing(text),
    onGap: () => direct.onRing(''),
    onError: () => undefined,
  })
  const openThroughRedis = async (where: string): Promise<JobSource> => {
    await direct.rest(true)
    const source = createRedisSource({
      store: openRedis(where, () => undefined),
      onTrouble: () => undefined,
      onUnheard: () => undefined,
      deployment: await readDeployment(pool, 'longshore'),
      workerId: worker.id,
      facts,
      running: () => 0,
      ask: direct.ask,
      look,
      onChange: () => undefined,
      logger,
    })
    await eventually('jobs come through Redis', async () => source.isOpen)
    return source
  }
  const source = redis ? await openThroughRedis(redis) : direct

  const claimOnce = async (limit: number) => {
    const { claimed } = await source.exchange([], limit)
    source.onClaimed(claimed.length)
    return claimed
  }
  return {
    source,
    worker,
    facts,
    pool,
    looks,
    async claim(jobs, limit = jobs) {
      const claimed: ClaimedJob[] = []
      await eventually(`${jobs} jobs are handed over`, async () => {
        claimed.push(...(await claimOnce(Math.min(limit, jobs - claimed.length))))
        return claimed.length >= jobs
      })
      return claimed
    },
    settle: (...outcomes) => source.exchange(outcomes, 0),
    idleUntilJob() {
      return new Promise<ClaimedJob>((resolve, reject) => {
        let isBusy = false
        let mustLook = false
        onLook = () => {
          mustLook = true
          if (!isBusy) lookAll().catch(reject)
        }
        const lookAll = async () => {
          isBusy = true
          while (mustLook) {
            mustLook = false
            const [job] = await claimOnce(1)
            if (!job) continue
            onLook = () => undefined
            resolve(job)
            return
          }
          isBusy = false
          source.onIdle()
        }
        onLook()
      })
    },
    async close() {
      onLook = () => undefined
      await source.close()
      await direct.close()
      await listener.close()
      await pool.end()
    },
  }
}
