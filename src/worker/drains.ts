/**
 * Drains a worker as its row says: `drain_workers` writes there and notifies the worker. Read anew each time, so that a
 * late or repeated notification does no harm.
 */
import type { Logger } from '../runtime/logger.ts'

export interface Drains {
  readonly isDrained: boolean
  /** The worker was drained, or may go on. Resolves when that holds. */
  look(): Promise<void>
}

export function createDrains(options: {
  /** Of the life that begins. */
  isDrained: boolean
  /** Undefined: the worker's row is gone. The next life begins as this one was. */
  read: () => Promise<boolean | undefined>
  /** Resolves when it holds. */
  apply: (isDrained: boolean) => Promise<void>
  logger: Logger
}): Drains {
  let { isDrained } = options
  let last: Promise<void> = Promise.resolve()

  const lookOnce = async () => {
    try {
      const wanted = await options.read()
      if (wanted === undefined || wanted === isDrained) return
      isDrained = wanted
      options.logger.info(
        wanted
          ? 'drained: this worker claims nothing until it is resumed'
          : 'resumed: this worker claims again',
      )
      await options.apply(wanted)
    } catch (error) {
      options.logger.info(
        { err: error },
        'could not read whether this worker is drained; the next beat asks again',
      )
    }
  }

  return {
    get isDrained() {
      return isDrained
    },
    look() {
      last = last.then(lookOnce)
      return last
    },
  }
}
