/** `longshore worker <module>`: run the handlers that a module exports. */
import { resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Command } from 'commander'
import { shownDuration } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import { messageOf } from '../job/stored-error.ts'
import type { Handler } from '../job/task.ts'
import { NO_SCRIPTS } from '../redis/scripts.ts'
import { createLogger } from '../runtime/logger.ts'
import { createWorker, type Worker } from '../worker/create-worker.ts'
import { loadModule } from './load-module.ts'
import { tell } from './output.ts'
import { addSettings, withSettings } from './settings.ts'
import { type LongRun, untilSignal } from './until-signal.ts'
import { withMetrics } from './with-metrics.ts'

export function addWorkerCommand(program: Command): void {
  const command = program
    .command('worker')
    .argument('<module>', 'a module whose default export (or export `handlers`) is a list of task.handle(…)')
    .description('run a worker process with the handlers of a module')
  addSettings(command, 'worker').action((module: string, flags: Record<string, unknown>) =>
    withSettings('worker', flags, async settings => {
      const {
        databaseUrl,
        listenUrl,
        redisUrl,
        logLevel,
        stopDeadline,
        metricsPort,
        metricsHost,
        ...others
      } = settings
      const worker = createWorker({
        ...withoutUndefined(others),
        postgres: databaseUrl,
        ...(listenUrl ? { listen: listenUrl } : {}),
        ...(redisUrl ? { redis: redisUrl } : {}),
        logger: createLogger('longshore', logLevel),
        handlers: await loadHandlers(module),
      })
      onToggle(worker)
      const run: LongRun = {
        name: 'longshore worker',
        async start() {
          const { id } = await worker.start()
          const way = redisUrl ? await wayOf(worker) : 'directly from Postgres'
          return [`longshore worker ${id}: running ${described(worker.serves)}; jobs come ${way}`]
        },
        stop: () => worker.stop({ deadline: stopDeadline }),
        grace: `running jobs get ${shownDuration(stopDeadline)}`,
      }
      await untilSignal(withMetrics(worker, { metricsPort, metricsHost }, run))
    }),
  )
}

/** A relay is heard by then if there is one. */
const HEARD_MS = 1500
const LOOK_MS = 50

async function wayOf(worker: Worker): Promise<string> {
  for (let ms = 0; ms < HEARD_MS && worker.path === 'direct'; ms += LOOK_MS) await pause(LOOK_MS)
  if (worker.path === 'redis') return 'through Redis'
  const { redis } = await worker.health()
  const why =
    redis === 'up' || redis.includes(NO_SCRIPTS)
      ? 'no relay of this version is heard in Redis; start `longshore relay`'
      : `Redis is ${redis.replace(/ \(.*?\)/, '')}`
  return `directly from Postgres for now: ${why}`
}

const MOST_NAMES = 20

function described({ tasks, queues, tags, properties }: Worker['serves']): string {
  const pairs = Object.entries(properties).map(([key, value]) => `${key}=${value}`)
  const lists = { tasks, queues, tags, properties: pairs.length > 0 ? pairs : ['none'] }
  return Object.entries(lists)
    .map(([what, names]) => `${what} ${named(names)}`)
    .join('; ')
}

const named = (names: readonly string[]): string =>
  names.length <= MOST_NAMES
    ? names.join(', ')
    : `${names.slice(0, MOST_NAMES).join(', ')} and ${names.length - MOST_NAMES} more`

/** SIGUSR2 drains the worker, and the next one lets it take jobs again. */
function onToggle(worker: Worker): void {
  let last: Promise<unknown> = Promise.resolve()
  const toggle = async () => {
    const isToDrain = !worker.isDrained
    await (isToDrain ? worker.drain() : worker.resume())
    const what = isToDrain ? 'drained, takes no more jobs (again to resume)' : 'resumed, takes jobs'
    tell(`longshore worker: SIGUSR2, ${what}`)
  }
  process.on('SIGUSR2', () => {
    last = last.then(toggle).catch(error => {
      tell(`longshore worker: SIGUSR2, and it could not be done: ${messageOf(error)}`)
    })
  })
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> }

const withoutUndefined = <T extends object>(settings: T): Defined<T> =>
  Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)) as Defined<T>

async function loadHandlers(module: string): Promise<Handler[]> {
  const path = resolve(module)
  const loaded = (await loadModule(path, path)) as { default?: unknown; handlers?: unknown }
  const handlers = loaded.handlers ?? loaded.default
  const isHandler = (value: unknown): value is Handler =>
    typeof value === 'object' && value !== null && 'task' in value && ('run' in value || 'module' in value)
  if (Array.isArray(handlers) && handlers.length > 0 && handlers.every(isHandler)) return handlers
  throw new LongshoreError(
    'CONFIG_INVALID',
    `${path} must export a list of handlers: export default [task.handle(async job => { … })]`,
  )
}
