/**
 * Producers and workers of one test: taken down after it whatever happens. Then the invariants are audited, over the tables
 * and over the journal of what the test did, and everything is removed.
 */
import { afterAll, afterEach, beforeAll, inject } from 'vitest'
import {
  createProducer,
  createRelay,
  createWorker,
  type Producer,
  type ProducerOptions,
  type Relay,
  type RelayOptions,
  type Violation,
  type Worker,
  type WorkerOptions,
} from '../../src/index.ts'
import { auditPostgres } from '../../src/postgres/audit.ts'
import { auditDispatch } from '../../src/relay/audit-dispatch.ts'
import { dropRedisUsers, makeRedisUsers, type RedisRole } from './acl.ts'
import { type AtRestOptions, asQueryable, auditAtRest, drained, mustHold } from './at-rest.ts'
import type { TestDatabase } from './database.ts'
import { createJournal, type JournalRun } from './journal.ts'
import { eventually } from './signals.ts'

export interface Deployment {
  producer(options?: ProducerOptions): Producer
  /** Started. Stopped after the test, with no patience for handlers. */
  worker(options: WorkerOptions): Promise<Worker>
  /** Where Redis is, if jobs go that way in this run of the tests. As somebody who may do everything there. */
  readonly redis: string | undefined
  /** The same as a process of this kind: a user with the ACL of the guide, unless the test has a Redis of its own. */
  redisOf(role: RedisRole): string | undefined
  /** The one that keeps Redis in step, started where there is none yet. Stopped after the test. */
  relay(options?: RelayOptions): Promise<Relay>
  /** Before a worker begins: a relay, unless the test brings its own. */
  needRelay(): Promise<void>
  /** Every run so far, in the order of their claims. */
  runs(): Promise<JournalRun[]>
  /** Resolves when every job has ended. */
  drained(): Promise<void>
  /** The full audit, see `at-rest.ts`. */
  atRest(options?: AtRestOptions): Promise<void>
  /** This test damages the tables on purpose: no audit after it. */
  skipAudit(because: string): void
  /** What the audits find now. */
  violations(): Promise<Violation[]>
  /** Everything is removed, as after a test. */
  clear(): Promise<void>
}

export type DeploymentOptions = (
  | { audit?: true }
  /** For files that damage the tables on purpose; say why. */
  | { audit: false; because: string }
) & {
  /** Jobs go through this one, in every run of the tests. */
  redis?: string | { readonly url: string }
  /** The test starts relays itself. */
  bringsRelays?: boolean
}

export function useDeployment(database: TestDatabase, options: DeploymentOptions = {}): Deployment {
  const producers: Producer[] = []
  const workers: Worker[] = []
  const relays: Relay[] = []
  const whereRedis = () => {
    const { redis } = options
    if (redis !== undefined) return typeof redis === 'string' ? redis : redis.url
    return inject('dispatch') === 'redis' ? inject('redisUrl') : undefined
  }
  let users: Record<RedisRole, string> | undefined
  const redisOf = (role: RedisRole) => users?.[role] ?? whereRedis()
  const journal = createJournal(database)
  const isToAudit = options.audit ?? true
  let isAudited = isToAudit

  beforeAll(async () => {
    await journal.install()
    if (options.redis !== undefined || inject('dispatch') !== 'redis') return
    const [row] = await database.rows<{ deployment: string }>('select deployment from longshore.settings')
    users = await makeRedisUsers(inject('redisUrl'), String(row?.deployment))
  })
  afterAll(async () => {
    const refused = users ? await dropRedisUsers(users, inject('redisUrl')) : []
    if (refused.length > 0) throw new Error(`the ACLs of the guide lack something: ${refused.join(', ')}`)
  })

  afterEach(async () => {
    await Promise.all(workers.splice(0).map(worker => worker.stop({ deadline: 0 })))
    await Promise.all(producers.splice(0).map(producer => producer.close()))
    // A test that failed may have left a transaction open.
    await database.rows("set lock_timeout = '20s'")
    const found = isAudited ? await violations() : []
    await Promise.all(relays.splice(0).map(relay => relay.stop()))
    isAudited = isToAudit
    await clear()
    mustHold(found)
  })

  const violations = async () => {
    // To plan what is asked after each test takes five times as long as to find that few rows hold nothing wrong.
    const planning = { isPlanned: !(await hasManyChanges(database)) }
    const db = asQueryable(database, planning)
    const found = [...(await auditPostgres(db)), ...(await journal.auditJournal(planning))]
    const redis = whereRedis()
    if (redis && relays.length > 0) found.push(...(await auditDispatch(db, { redis })))
    return found
  }

  const clear = async () => {
    await empty(database)
    await database.rows("update longshore.settings set dispatch = 'direct'")
  }

  const relay = async (options: RelayOptions = {}) => {
    if (relays[0]) return relays[0]
    const redis = redisOf('relay')
    const started = createRelay({
      postgres: database.urlOf('relay'),
      ...(redis ? { redis } : {}),
      ...options,
    })
    relays.push(started)
    await started.start()
    return started
  }

  const needRelay = async () => {
    if (whereRedis() && !options.bringsRelays) await relay()
  }

  return {
    needRelay,
    get redis() {
      return whereRedis()
    },
    redisOf,
    relay,
    producer(options = {}) {
      const producer = createProducer({
        postgres: database.urlOf('producer'),
        // Some tests of a Redis of their own want to be sure who tells it.
        ...(users ? { redis: users.producer } : {}),
        ...options,
      })
      producers.push(producer)
      return producer
    },
    async worker(options) {
      const redis = redisOf('worker')
      await needRelay()
      const worker = createWorker({
        postgres: database.urlOf('worker'),
        abortGrace: 50,
        ...(redis ? { redis } : {}),
        ...options,
      })
      workers.push(worker)
      await worker.start()
      if (redis) await eventually('jobs come through Redis', async () => worker.path === 'redis')
      return worker
    },
    runs: () => journal.runs(),
    drained: () => drained(database),
    atRest: options => auditAtRest(database, journal, whereRedis(), options),
    skipAudit() {
      isAudited = false
    },
    violations,
    clear,
  }
}

const TABLES = [
  'longshore.jobs',
  'longshore.finished_jobs',
  'longshore.workers',
  'longshore.awaited',
  'longshore.tasks',
  'longshore.limits',
  'longshore.slot_groups',
  'longshore.lane_heads',
  'longshore.limit_waiters',
  'longshore.limit_uses',
  'longshore.lanes',
  'longshore.lane_uses',
  'longshore.outbox',
  'longshore.relayed',
  'longshore.queues',
  'longshore.groups',
  'longshore.limit_changes',
  'longshore.edges',
  'longshore.workflows',
  'longshore.job_logs',
  'longshore.job_progress',
  'journal.changes',
]
const MANY_CHANGES = 1000

async function hasManyChanges(database: TestDatabase): Promise<boolean> {
  const [row] = await database.rows<{ rows: number }>(
    `select (select count(*) from (select from journal.changes limit ${MANY_CHANGES + 1}) c)::int as rows`,
  )
  return (row?.rows ?? 0) > MANY_CHANGES
}

/** Truncating so many tables, partitions and indexes takes a tenth of a second: what few rows there are is deleted. */
async function empty(database: TestDatabase): Promise<void> {
  if (await hasManyChanges(database)) return void (await database.rows(`truncate ${TABLES.join(', ')}`))
  // Without the triggers that keep the journal.
  const deletes = TABLES.map(table => `delete from ${table};`).join('\n')
  await database.rows(
    `set session_replication_role = replica; ${deletes} set session_replication_role = origin`,
  )
}
