/** `longshore worker <module>`: run the handlers that a module exports. */
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Command } from 'commander'
import type { Duration } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import type { Handler } from '../job/task.ts'
import { createWorker } from '../worker/create-worker.ts'
import { addDatabaseOptions, addRedisOption, type DatabaseOptions, requireDatabaseUrl } from './options.ts'
import { untilSignal } from './until-signal.ts'

interface Options extends DatabaseOptions {
  redisUrl?: string
  tags?: string[]
  queues?: string[]
  properties?: Record<string, string>
  name?: string
  maxConcurrentTasks?: number
  claimBatchSize?: number
  pollIntervalMs?: number
  maxThreads?: number
  lease?: string
}

export function addWorkerCommand(program: Command): void {
  const command = program
    .command('worker')
    .argument('<module>', 'a module whose default export (or export `handlers`) is a list of task.handle(…)')
    .description('run a worker process with the handlers of a module')
    .option('--tags <tags>', 'tags to offer, separated by commas (default: those of the tasks)', toList)
    .option('--queues <queues>', 'queues to serve, separated by commas (default: those of the tasks)', toList)
    .option(
      '--properties <pairs>',
      'what this worker has: gpu=a100,mem=high; in values write , = % as %2C %3D %25',
      toProperties,
    )
    .option('--name <name>', 'name in logs and tables (default: host and process id)')
    .option('--max-concurrent-tasks <n>', 'jobs at once (MAX_CONCURRENT_TASKS, default 1000)', Number)
    .option('--claim-batch-size <n>', 'jobs in one claim (CLAIM_BATCH_SIZE, default 50)', Number)
    .option(
      '--poll-interval-ms <n>',
      'fall-back interval of an idle worker (POLL_INTERVAL_MS, default 100)',
      Number,
    )
    .option(
      '--max-threads <n>',
      'threads for tasks that ask for one (MAX_THREADS, default: processors)',
      Number,
    )
    .option(
      '--lease <duration>',
      'without a sign of life for so long its jobs go to others, such as 2s (default 15s)',
    )
  addRedisOption(addDatabaseOptions(command)).action(
    async (module: string, { databaseUrl, redisUrl, lease, ...options }: Options) => {
      const postgres = requireDatabaseUrl({ ...options, ...(databaseUrl ? { databaseUrl } : {}) })
      const worker = createWorker({
        ...options,
        postgres,
        ...(redisUrl ? { redis: redisUrl } : {}),
        ...(lease ? { lease: lease as Duration } : {}),
        handlers: await loadHandlers(module),
      })
      const { id } = await worker.start()
      await untilSignal(`longshore worker ${id}: running`, () => worker.stop())
    },
  )
}

const toList = (text: string): string[] => text.split(',').map(item => item.trim())

function toProperties(text: string): Record<string, string> {
  const properties = new Map<string, string>()
  for (const item of toList(text)) {
    const [, key = '', written = ''] = /^([^=]+)=([^=]+)$/.exec(item) ?? []
    const value = decode(written)
    if (!value || properties.has(key)) {
      throw new LongshoreError(
        'CONFIG_INVALID',
        `--properties takes pairs like gpu=a100,mem=high, each key once, with , = % in values as %2C %3D %25; got ${text}`,
      )
    }
    properties.set(key, value)
  }
  return Object.fromEntries(properties)
}

function decode(value: string): string | undefined {
  try {
    return decodeURIComponent(value)
  } catch {
    return undefined // a lone %
  }
}

async function loadHandlers(module: string): Promise<Handler[]> {
  const path = resolve(module)
  const loaded = (await import(pathToFileURL(path).href).catch(error => {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `cannot load ${path}: ${error instanceof Error ? error.message : error}`,
      {
        cause: error,
      },
    )
  })) as { default?: unknown; handlers?: unknown }
  const handlers = loaded.handlers ?? loaded.default
  const isHandler = (value: unknown): value is Handler =>
    typeof value === 'object' && value !== null && 'task' in value && ('run' in value || 'module' in value)
  if (Array.isArray(handlers) && handlers.length > 0 && handlers.every(isHandler)) return handlers
  throw new LongshoreError(
    'CONFIG_INVALID',
    `${path} must export a list of handlers: export default [task.handle(async job => { … })]`,
  )
}
