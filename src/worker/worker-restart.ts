/** Owns what follows when a life of a worker has died: the next begins, however long Postgres is away, until a stop. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Logger } from '../runtime/logger.ts'
import { pauseMs } from '../runtime/retry.ts'
import type { WorkerLife } from './worker-life.ts'

export interface Lives {
  /** Of the latest life. */
  readonly workerId: number
  readonly path: WorkerLife['path']
  readonly isDrained: boolean
  vitals: WorkerLife['vitals']
  probeRedis: WorkerLife['probeRedis']
  /** Resolves when the worker claims nothing any more, or claims again, or has been stopped. */
  drain(isToDrain: boolean): Promise<void>
  setProperties: WorkerLife['setProperties']
  end(deadlineMs: number): Promise<void>
}

const PAUSES = { firstMs: 100, maxMs: 5000 }

/** Rejects when the first life cannot begin; later ones are tried again. */
export async function beginLives(options: {
  begin: (earlier?: WorkerLife) => Promise<WorkerLife>
  /** Called once, when the last life has ended. */
  onEnd: () => Promise<void>
  logger: Logger
}): Promise<Lives> {
  const { logger } = options
  const ending = new AbortController()
  let current = await options.begin()
  let change: Promise<void> = Promise.resolve()

  const follow = (life: WorkerLife) => {
    life.died.then(() => {
      change = succeed(life)
    })
  }

  const succeed = async (dead: WorkerLife): Promise<void> => {
    await dead.end(0).catch(error => logger.warn({ err: error }, 'the old life did not end in order'))
    for (let failures = 1; !ending.signal.aborted; failures++) {
      try {
        current = await options.begin(dead)
        logger.info({ worker: current.workerId, before: dead.workerId }, 'the worker has begun a new life')
        return follow(current)
      } catch (error) {
        logger.warn({ err: error }, 'the worker could not begin a new life; trying again')
        const woken = { signal: ending.signal }
        await pause(pauseMs(failures, PAUSES), undefined, woken).catch(() => undefined) // a stop
      }
    }
  }
  follow(current)

  const end = async (deadlineMs: number) => {
    ending.abort()
    await current.end(deadlineMs)
    // A change-over under way may still bring a life.
    await change
    await current.end(deadlineMs)
  }

  let ended: Promise<void> | undefined
  return {
    get workerId() {
      return current.workerId
    },
    get path() {
      return current.path
    },
    get isDrained() {
      return current.isDrained
    },
    vitals: () => current.vitals(),
    probeRedis: () => current.probeRedis(),
    async drain(isToDrain) {
      // A life that has died leaves it to the next.
      while (!(await current.drain(isToDrain)) && !ending.signal.aborted)
        await current.died.then(() => change)
    },
    setProperties: had => current.setProperties(had),
    end(deadlineMs) {
      ended ??= end(deadlineMs).finally(options.onEnd)
      return ended
    },
  }
}
