/**
 * Owns the table of settings: one entry each. Flags, environment, config file, help, `--print-config` and the checks of
 * `createWorker` and `createRelay` follow from it; a test holds the table of the guide against it.
 */
import { z } from 'zod'
import {
  duration,
  label,
  labels,
  oneOf,
  pairToText,
  properties,
  type SettingType,
  share,
  text,
  urls,
  whole,
} from './setting-types.ts'

export interface Setting<T = unknown, Default = T | undefined> {
  readonly type: SettingType<T>
  readonly env: string
  readonly about: string
  readonly fallback: Default
  /** How a default is described that is not a value. */
  readonly unset?: string
  /** A second flag, given once for each item: `--property gpu=a100`. */
  readonly each?: {
    readonly flag: string
    readonly takes: string
    readonly about: string
    /** The item as the type writes it in its list. */
    toText(item: string): string
  }
}

type Facts = Pick<Setting, 'env' | 'about' | 'unset' | 'each'>

/** A setting with a default. `fallback` is in the form in which the type keeps it: durations in milliseconds. */
const setting = <T>(type: SettingType<T>, fallback: T, facts: Facts): Setting<T, T> => ({
  type,
  fallback,
  ...facts,
})
const optional = <T>(type: SettingType<T>, facts: Facts): Setting<T, undefined> => ({
  type,
  fallback: undefined,
  ...facts,
})

/** To how many of the workers that may run it a ready job is copied: to all, or to one. */
export type ScheduleMode = 'fanout' | 'balanced'
/** To which ones. */
export type BalanceStrategy = 'least-queue' | 'round-robin' | 'random'
export const SCHEDULE_MODES: readonly ScheduleMode[] = ['fanout', 'balanced']
export const BALANCE_STRATEGIES: readonly BalanceStrategy[] = ['least-queue', 'round-robin', 'random']
const LOG_LEVELS = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const

export const DEFAULT_SCHEMA = 'longshore'
export const SCHEMA_NAME = /^[a-z_][a-z0-9_]{0,40}$/
export const SCHEMA_RULE = 'is not a valid name: use at most 41 of a-z, 0-9 and _, not starting with a digit'

const MOST_LABELS = 1000
const METRICS_PREFIX = /^([a-zA-Z_][a-zA-Z0-9_]{0,99})?$/
const METRICS_PREFIX_RULE = 'must be at most 100 of a-z, A-Z, 0-9 and _, not starting with a digit'

/** What every command needs to know. */
const shared = {
  databaseUrl: optional(urls('postgres', 'postgresql'), {
    env: 'DATABASE_URL',
    about: 'where Postgres is: postgres://user:password@host:port/name',
    unset: 'none; it must be given',
  }),
  listenUrl: optional(urls('postgres', 'postgresql'), {
    env: 'DATABASE_LISTEN_URL',
    about:
      'where to listen for notifications: Postgres itself, where the database URL leads to a pooler in transaction mode',
    unset: 'the database URL',
  }),
  redisUrl: optional(urls('redis', 'rediss'), {
    env: 'REDIS_URL',
    about: 'where Redis is: redis://host:port, several of one cluster separated by commas',
    unset: 'none: jobs go directly through Postgres',
  }),
  schema: setting(text(SCHEMA_NAME, '<name>', SCHEMA_RULE), DEFAULT_SCHEMA, {
    env: 'LONGSHORE_SCHEMA',
    about: 'schema of the installation',
  }),
  logLevel: setting(oneOf(LOG_LEVELS, '<level>'), 'warn', {
    env: 'LONGSHORE_LOG_LEVEL',
    about: `what is logged: ${LOG_LEVELS.join(', ')}`,
  }),
}

/** What every process has that runs on. */
const metrics = {
  metricsPort: optional(whole(0, 65_535), {
    env: 'LONGSHORE_METRICS_PORT',
    about: 'serve /metrics for Prometheus, /healthz and /readyz on this port; 0: any port',
    unset: 'not served',
  }),
  metricsHost: setting(label(255), '127.0.0.1', {
    env: 'LONGSHORE_METRICS_HOST',
    about: 'the address to serve them on',
  }),
  metricsPrefix: setting(text(METRICS_PREFIX, '<text>', METRICS_PREFIX_RULE), 'longshore_', {
    env: 'LONGSHORE_METRICS_PREFIX',
    about: 'in front of the name of every metric',
  }),
}

const worker = {
  tags: optional(labels('tag', MOST_LABELS), {
    env: 'LONGSHORE_TAGS',
    about: 'tags that it has, separated by commas',
    unset: 'those of the tasks',
  }),
  queues: optional(labels('queue', MOST_LABELS), {
    env: 'LONGSHORE_QUEUES',
    about: 'queues to serve, separated by commas',
    unset: 'those of the tasks',
  }),
  properties: optional(properties, {
    env: 'LONGSHORE_PROPERTIES',
    about: 'what this worker has: gpu=a100,mem=high; in values write , = % as %2C %3D %25',
    unset: 'nothing',
    each: {
      flag: 'property',
      takes: '<key=value>',
      about: 'one of its properties, the value as it is; may be repeated',
      toText: pairToText,
    },
  }),
  name: optional(label(200), {
    env: 'LONGSHORE_WORKER_NAME',
    about: 'name in logs and tables',
    unset: 'host and process id',
  }),
  maxConcurrentTasks: setting(whole(1, 100_000), 1000, {
    env: 'MAX_CONCURRENT_TASKS',
    about: 'jobs that run at once',
  }),
  claimBatchSize: setting(whole(1, 1000), 50, {
    env: 'CLAIM_BATCH_SIZE',
    about: 'jobs in one claim; under a backlog of short jobs it grows within the free permits',
  }),
  pollInterval: setting(duration('1ms', '1h'), 100, {
    env: 'POLL_INTERVAL_MS',
    about: 'how often an idle worker looks by itself; a wake-up ends the wait',
  }),
  maxThreads: optional(whole(1, 1024), {
    env: 'MAX_THREADS',
    about: "threads for tasks with isolate: 'thread'; each runs one job at a time",
    unset: 'as many as there are processors',
  }),
  threadMemoryMb: optional(whole(8, 1_048_576), {
    env: 'THREAD_MEMORY_MB',
    about: 'largest heap of such a thread: a job that needs more fails',
    unset: 'no limit of its own',
  }),
  memoryThreshold: setting(share, 0.8, {
    env: 'MEMORY_THRESHOLD',
    about:
      'claims are halved while more than this share of the heap, or of the control group or machine, is used',
  }),
  latencyThreshold: optional(duration('1ms', '1d'), {
    env: 'LATENCY_THRESHOLD',
    about: "claims shrink to 70 % while the p99 of handlers' durations is above this",
    unset: 'they do not shrink',
  }),
  lease: setting(duration('100ms', '1h'), 15_000, {
    env: 'LONGSHORE_LEASE',
    about: 'without a sign of life for so long its jobs go to others',
  }),
  stall: setting(duration('100ms', '1d'), 300_000, {
    env: 'LONGSHORE_STALL',
    about: 'how long the event loop may be blocked before the signs of life stop',
  }),
  maxCompletions: setting(whole(1, 100), 5, {
    env: 'LONGSHORE_MAX_COMPLETIONS',
    about: 'transactions of ctx.complete at once; each has a connection of its own while it is open',
  }),
  abortGrace: setting(duration('0ms', '24d'), 5000, {
    env: 'LONGSHORE_ABORT_GRACE',
    about: 'how long a handler may take to return after its signal fired',
  }),
  aloneDeadline: setting(duration('0ms', '24d'), 30_000, {
    env: 'LONGSHORE_ALONE_DEADLINE',
    about:
      'how long a job that must run alone waits for the other handlers of its worker before it is given back',
  }),
  maxLogLines: setting(whole(1, 100_000), 1000, {
    env: 'LONGSHORE_MAX_LOG_LINES',
    about: 'lines that one run may log; what is beyond is dropped and counted',
  }),
  maxResultBytes: setting(whole(1, 4 * 1024 * 1024), 256 * 1024, {
    env: 'LONGSHORE_MAX_RESULT_BYTES',
    about: 'largest result in bytes of JSON',
  }),
  stopDeadline: setting(duration('0ms', '24d'), 30_000, {
    env: 'LONGSHORE_STOP_DEADLINE',
    about: 'how long running jobs may go on after SIGTERM or SIGINT before their signals fire',
  }),
  ...metrics,
}

const relay = {
  scheduleMode: setting(oneOf(SCHEDULE_MODES, '<mode>'), 'fanout', {
    env: 'TASK_SCHEDULE_MODE',
    about: 'fanout: copy a ready job to every worker that may run it; balanced: to one',
  }),
  balanceStrategy: setting(oneOf(BALANCE_STRATEGIES, '<strategy>'), 'least-queue', {
    env: 'TASK_BALANCE_STRATEGY',
    about: 'to which one: least-queue (fewest queued and running), round-robin (in turns), random',
  }),
  fanoutWidth: setting(whole(0, 1000), 0, {
    env: 'TASK_FANOUT_WIDTH',
    about: 'fanout to so many workers at most; 0: to all, of a crowd to 16',
  }),
  queueDepth: setting(whole(1, 10_000), 100, {
    env: 'LONGSHORE_QUEUE_DEPTH',
    about: "copies of jobs in one worker's queue",
  }),
  laneWindow: setting(whole(2, 1_000_000), 4000, {
    env: 'LONGSHORE_LANE_WINDOW',
    about: 'ready jobs of one lane that Redis holds',
  }),
  ...metrics,
}

/** By section, as in a config file: those of `shared` stand at the top there. */
export const SETTINGS = { shared, worker, relay }

export type Section = keyof typeof SETTINGS
export type Command = Exclude<Section, 'shared'>

type Values<Table> = {
  [K in keyof Table]: Table[K] extends Setting<infer T, infer Default>
    ? Default extends undefined
      ? T | undefined
      : T
    : never
}
/** The effective settings of a section. */
export type SettingsOf<S extends Section> = Values<(typeof SETTINGS)[S]>

/** The settings of one section, for going over them. */
export const entriesOf = (section: Section): [string, Setting][] =>
  Object.entries(SETTINGS[section]) as unknown as [string, Setting][]

const shapeOf = (section: Section) =>
  Object.fromEntries(entriesOf(section).map(([key, { type }]) => [key, type.schema.optional()]))

/** A whole config file. */
export const configSchema = z.strictObject({
  ...shapeOf('shared'),
  worker: z.strictObject(shapeOf('worker')).optional(),
  relay: z.strictObject(shapeOf('relay')).optional(),
})
