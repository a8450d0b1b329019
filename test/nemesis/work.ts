/** A worker in a process of its own. Each run of a handler leaves its traces in a file, outside of Postgres. */
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import {
  createWorker,
  type JobContext,
  LongshoreError,
  NonRetryableError,
  type RunningJob,
} from '../../src/index.ts'
import { type EffectLine, type HandlerEnd, lineWriter, type Payload, trueNow } from './evidence.ts'
import { listenToParent } from './parent.ts'
import { allTasks, type Limits } from './tasks.ts'

export interface WorkOptions {
  name: string
  postgres: string
  redis: string
  lease: number
  properties: Record<string, string>
  limits: Limits
  effectLog: string
}

const options = JSON.parse(process.argv[2] ?? '{}') as WorkOptions
const write = lineWriter<EffectLine>(options.effectLog)
let runs = 0
const AGAIN_MS = 500

async function run(job: RunningJob<Payload>, ctx: JobContext): Promise<void> {
  const { key, way, ms, isStubborn } = job.payload
  const where = { run: runs++, job: job.id, attempt: job.attempt, worker: options.name }
  const end = (how: HandlerEnd) => write({ e: 'end', ...where, at: trueNow(), how })
  write({ e: 'start', ...where, key, at: trueNow() })
  try {
    await pause(ms, undefined, isStubborn ? {} : { signal: ctx.signal })
    if (way === 'complete')
      await ctx.complete(async tx => {
        await tx.query(
          "insert into effects (job_id, token) values ($1, current_setting('longshore_run.lease')::bigint)",
          [job.id],
        )
      })
  } catch (error) {
    const cause = ctx.signal.aborted ? ctx.signal.reason : error
    // A completion that found no Postgres has failed by itself, as one that the driver gave up.
    const isOwn = cause instanceof LongshoreError && cause.code !== 'STORE_UNAVAILABLE'
    end(isOwn ? cause.code : `threw ${(error as { code?: string }).code ?? error}`)
    throw error
  }
  if (way === 'fail' || (way === 'flaky' && job.attempt === 1)) {
    end('planned')
    throw way === 'fail' ? new NonRetryableError('as planned') : new Error('now and then')
  }
  end('returned')
}

const worker = createWorker({
  name: options.name,
  postgres: options.postgres,
  redis: options.redis,
  lease: options.lease,
  properties: options.properties,
  maxConcurrentTasks: 20,
  abortGrace: '1s',
  handlers: allTasks(options.limits).map(task => task.handle(run)),
})
/** Tried until it is done or something newer is asked for: Postgres may be away just now. */
function insistent() {
  let newest = 0
  return (change: () => Promise<void>): void => {
    const own = ++newest
    const attempt = () => {
      if (own !== newest) return
      change().catch(error => {
        parent.complain(error)
        setTimeout(attempt, AGAIN_MS).unref()
      })
    }
    attempt()
  }
}
const changeProperties = insistent()
const changeDrain = insistent()
const parent = listenToParent({
  properties: properties => changeProperties(() => worker.setProperties(properties)),
  drained: isDrained => changeDrain(() => (isDrained ? worker.drain() : worker.resume())),
})
await worker.start()
parent.tell({ isRunning: true })
await once(process, 'SIGTERM')
await worker.stop({ deadline: '10s' })
parent.leave()
