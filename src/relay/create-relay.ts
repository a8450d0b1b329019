/**
 * The relay: the sidecar that keeps a deployment going. It does the upkeep (due jobs, rescue, history), and with Redis it keeps
 * the dispatch index there in step with Postgres. Several may run: one leads, the others stand by.
 */
import { hostname } from 'node:os'
import { checkObject } from '../job/check-options.ts'
import { LongshoreError } from '../job/errors.ts'
import { checkDatabase } from '../postgres/check-database.ts'
import { openPool, type Pool } from '../postgres/connect.ts'
import { refuseFailing } from '../postgres/failing-duties.ts'
import { createLockWatch } from '../postgres/held-locks.ts'
import { openListener, POOLED } from '../postgres/listener.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { tellOfPostgres } from '../postgres/postgres-outage.ts'
import { probePostgres } from '../postgres/probe.ts'
import { type Overview, readOverview } from '../postgres/read-overview.ts'
import { type QueueSettings, readDeployment, setDispatch } from '../postgres/relay-reads.ts'
import { channelName } from '../postgres/schema-name.ts'
import { type Holder, newSecret } from '../postgres/secret.ts'
import { patient } from '../postgres/unavailable.ts'
import { checkRedis, openRedis, type RedisStore } from '../redis/open-redis.ts'
import { queueIndex } from '../redis/queue-index.ts'
import { type RedisConfig, readRedisConfig } from '../redis/redis-config.ts'
import { tellOfRedis } from '../redis/redis-trouble.ts'
import { readOptions, type ScheduleSettings, toSpread } from '../runtime/config.ts'
import { createProbe, refuseHeld } from '../runtime/health.ts'
import { createLogger, type Logger, withSafeErrors } from '../runtime/logger.ts'
import { withOutages } from '../runtime/outage.ts'
import { checkAll } from '../runtime/problems.ts'
import type { Exposition, Metrics } from '../runtime/prometheus.ts'
import { isNotLeader } from '../upkeep/lead.ts'
import { startUpkeep, type Upkeep } from '../upkeep/start-upkeep.ts'
import { notReady, type RelayHealth, type RelayProbes, readHealth } from './relay-health.ts'
import { type RelayLoop, type RelayMetrics, startRelayLoop } from './relay-loop.ts'

/** What is not given comes from the environment, as the table of settings in the guide says. */
export interface RelayOptions extends Partial<ScheduleSettings> {
  /** Where Postgres is: a connection string or `pg` settings. Default: `DATABASE_URL`. */
  postgres?: PostgresConfig
  /** Where to listen for notifications, if `postgres` leads to a pooler in transaction mode. Default: `DATABASE_LISTEN_URL`, else `postgres`. */
  listen?: PostgresConfig
  /** Where Redis is: a URL, or several of a cluster. Default: `REDIS_URL`; without it, jobs go directly through Postgres. */
  redis?: RedisConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
  /** Copies of jobs in one worker's queue. Default 100. */
  queueDepth?: number
  /** Ready jobs of one lane that Redis holds; what is beyond stays in Postgres until there is room. Default 4000. */
  laneWindow?: number
  /** In front of the names of its metrics. Default `'longshore_'`. */
  metricsPrefix?: string
  logger?: Logger
}

export interface Relay {
  /** Resolves when it leads or stands by. */
  start(): Promise<void>
  stop(): Promise<void>
  /** What it does at this moment; zeros while it stands by. */
  metrics(): RelayMetrics
  /** Its metrics and those of the deployment for Prometheus, as `longshore relay --metrics-port` serves them at `/metrics`. */
  prometheus(): Promise<Exposition>
  /** Whether it can do its work, as served at `/readyz`: asks the stores, each for at most two seconds. */
  health(): Promise<RelayHealth>
}

const STANDING_BY: Omit<RelayMetrics, 'stuckGroups'> = {
  isLeader: false,
  lagMs: 0,
  applied: 0,
  appliedPerSecond: 0,
  bells: 0,
  ignoredHints: 0,
  queues: [],
}

/** At the start: a Postgres that restarts, or a connection that breaks, is no reason to give up at once. */
const patiently = patient({ firstMs: 100, maxMs: 1000, maxTries: 5 })

/** Those of tasks among them are told to Prometheus. */
const MOST_LIMITS = 200

const KNOWN = Object.keys({
  postgres: true,
  listen: true,
  redis: true,
  schema: true,
  scheduleMode: true,
  balanceStrategy: true,
  fanoutWidth: true,
  queueDepth: true,
  laneWindow: true,
  metricsPrefix: true,
  logger: true,
} satisfies Record<keyof RelayOptions, true>)

export function createRelay(options: RelayOptions = {}): Relay {
  checkObject('CONFIG_INVALID', 'createRelay', options)
  const [settings, given] = checkAll(
    () => readOptions('relay', 'createRelay', options, KNOWN),
    () => (options.logger === undefined ? undefined : withSafeErrors(options.logger)),
    () => typeof options.redis !== 'string' && options.redis && readRedisConfig(options.redis),
  )
  const { schema } = settings
  const told = given ?? createLogger('longshore', settings.logLevel)
  const postgresTold = tellOfPostgres(told, 'the relay tries again')
  const redisTold = tellOfRedis(told, 'workers claim directly from Postgres until it can')
  const logger = withOutages(told, [redisTold, postgresTold])
  const postgres = options.postgres ?? settings.databaseUrl ?? ''
  const listen = options.listen ?? settings.listenUrl
  const redis = options.redis ?? settings.redisUrl
  if (redis) readRedisConfig(redis)
  const sizes = { depth: settings.queueDepth, window: settings.laneWindow }
  let loop: RelayLoop | undefined
  let stuckGroups = 0
  let isLeading = false
  let probes: RelayProbes | undefined
  let look: (() => Promise<Overview>) | undefined

  const begin = async () => {
    // One of them for those who ask how it fares: they must not wait behind its duties.
    const pool = openPool(
      postgres,
      redis ? 5 : 2,
      error => logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
      { onAnswer: postgresTold.outage.works },
    )
    let store: RedisStore | undefined
    try {
      await patiently(() => checkDatabase(pool, schema, 'lead_as_relay'))
      const deployment = await patiently(() => readDeployment(pool, schema))
      store = redis ? await reach(redis) : undefined
      const unique = Date.now().toString(36) + Math.random().toString(36).slice(2, 6)
      const holder = { name: `relay ${hostname()}:${process.pid}:${unique}`, secret: newSecret() }
      let upkeep: Upkeep | undefined
      const listener = await patiently(() =>
        openListener({
          postgres: listen ?? postgres,
          onPooled: () => logger.info(POOLED),
          channels: [channelName(schema, 'due'), channelName(schema, 'outbox')],
          onNotify: channel => (channel === channelName(schema, 'due') ? upkeep?.onDue() : loop?.look()),
          onGap: () => {
            postgresTold.outage.works()
            upkeep?.onDue()
            loop?.look()
          },
          onError: error => logger.warn({ err: error }, 'the listening connection broke; reconnecting'),
        }),
      )
      const terms = store ? createTerms({ pool, store, deployment, holder }) : undefined
      upkeep = startUpkeep({
        db: listener,
        pool,
        schema,
        holder,
        rank: store ? 'relay with Redis' : 'relay',
        onTerm: epoch => {
          isLeading = epoch !== null
          terms?.onTerm(epoch)
        },
        onStuck: groups => {
          stuckGroups = groups
        },
        logger,
      })
      const running = upkeep
      const heldLocks = createLockWatch(pool, schema)
      const index = store && queueIndex(store, deployment, 'default')
      probes = {
        postgres: createProbe(() => probePostgres(pool, schema)),
        redis: index && createProbe(() => index.probe()),
        locks: createProbe(async () => refuseHeld(await heldLocks())),
        upkeep: createProbe(() => refuseFailing(pool, schema)),
      }
      look = () => readOverview(pool, schema, { limits: MOST_LIMITS })
      return async () => {
        probes = undefined
        look = undefined
        await terms?.end()
        await running.stop()
        isLeading = false
        await listener.close()
        await pool.end()
        store?.close()
      }
    } catch (error) {
      store?.close()
      await pool.end()
      throw error
    }
  }

  /** A server that must not be used is refused; one that is away is waited for, since the upkeep must go on. */
  const reach = async (where: RedisConfig): Promise<RedisStore> => {
    try {
      if (!(await checkRedis(where)))
        logger.info('this user of Redis may not ask for maxmemory-policy: see to it that it is noeviction')
    } catch (error) {
      if (error instanceof LongshoreError && error.code === 'STORE_UNSUPPORTED') throw error
      redisTold.onTrouble(error)
    }
    return openRedis(where, redisTold.onTrouble, { mayLoad: true, onReady: redisTold.outage.works })
  }

  /** One loop for each term that this relay leads. */
  const createTerms = (of: { pool: Pool; store: RedisStore; deployment: string; holder: Holder }) => {
    let change: Promise<unknown> = Promise.resolve()
    let isEnded = false
    const follow = async (epoch: string | null) => {
      if (loop && loop.epoch !== epoch) {
        const over = loop
        loop = undefined
        await over.stop()
      }
      if (epoch === null || loop || isEnded) return
      // Whatever was committed without a word before this is found by the audit.
      const isNew = await setDispatch(of.pool, schema, of.holder, 'redis')
      loop = startRelayLoop({
        ...of,
        schema,
        epoch,
        mayAdopt: !isNew,
        spreadOf: queue => toSpread({ ...settings, ...withoutNulls(queue) }),
        sizes,
        onLost: () => onTerm(null),
        logger,
      })
    }
    const onTerm = (epoch: string | null) => {
      change = change
        .then(() => follow(epoch))
        .catch(error => {
          const level = isNotLeader(error) ? 'debug' : 'warn' // another process leads by now
          logger[level]({ err: error }, 'could not begin or end a term; trying again')
        })
    }
    return {
      onTerm,
      async end() {
        isEnded = true
        onTerm(null)
        await change
      },
    }
  }

  let life: Promise<() => Promise<void>> | undefined
  let isStopping = false
  let prometheus: Promise<Metrics> | undefined
  const readMetrics = (): RelayMetrics => {
    // Whoever has no Redis to keep in step leads by the upkeep alone.
    const standing = { ...STANDING_BY, isLeader: isLeading && !redis }
    return { ...(loop?.metrics() ?? standing), stuckGroups }
  }
  return {
    async start() {
      life ??= begin().catch(error => {
        life = undefined
        throw error
      })
      await life
    },
    async stop() {
      const end = await life?.catch(() => undefined) // a start that failed has nothing to stop
      life = undefined
      isStopping = true
      await end?.()
      isStopping = false
    },
    metrics: readMetrics,
    async prometheus() {
      // Loading it takes 60 ms to load.
      prometheus ??= import('./relay-metrics.ts').then(({ createRelayMetrics }) =>
        createRelayMetrics(settings.metricsPrefix, readMetrics, async () => {
          if (!look) throw new Error('the relay does not run')
          return look()
        }),
      )
      return (await prometheus).render()
    },
    async health() {
      if (isStopping) return notReady('stopping')
      return probes ? readHealth(() => isLeading, probes) : notReady(life ? 'starting' : 'not started')
    },
  }
}

/** What is set for a queue goes before what the relay was given. */
const withoutNulls = (queue: QueueSettings): Partial<ScheduleSettings> =>
  Object.fromEntries(Object.entries(queue).filter(([, value]) => value !== null))
