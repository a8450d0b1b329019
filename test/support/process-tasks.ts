/** The tasks that worker processes of the tests know, see `task-worker.ts`. */
import { defineTask } from '../../src/index.ts'

/** Three that do nothing, for orders over several tasks. */
export const noops = ['noop-1', 'noop-2', 'noop-3'].map(name => defineTask<number>({ name }))
/** Returns when its process is told to, and does not listen to its signal. At most four at once. */
export const wait = defineTask<number>({ name: 'wait', concurrency: 4 })
/** Logs a line, tells how far it is, and returns when its process is told to. */
export const talk = defineTask<number>({ name: 'talk' })
/** Returns when its process is told to: its payload, with the character `\u0000` for NUL. */
export const answer = defineTask<string, string>({ name: 'answer' })
/** Blocks the event loop for so many milliseconds. */
export const block = defineTask<number>({ name: 'block' })
/** Holds so many numbers for so long. */
export const heavy = defineTask<{ numbers: number; ms: number }>({ name: 'heavy' })
/** Takes a moment. */
export const nap = defineTask<number>({ name: 'nap' })
/** Takes a moment, fails its first attempt now and then. Limited in both ways. */
export const tenant = defineTask<number>({
  name: 'tenant',
  concurrency: 6,
  concurrencyPerKey: 2,
  retry: { maxAttempts: 3, backoff: { type: 'fixed', delay: 0 } },
})
/** Kills its process. */
export const poison = defineTask<number>({ name: 'poison', retry: { maxRescues: 2 } })
/** How a part of a graph goes: `complete` writes its id to the table `effects` and ends its job in one transaction. */
export interface PartPlan {
  ms: number
  way: 'succeed' | 'fail' | 'flaky' | 'complete'
}
/** One of a graph. Has tries enough for every fault of a test. */
export const part = defineTask<PartPlan>({
  name: 'part',
  retry: { maxAttempts: 100, maxRescues: 100, backoff: { type: 'fixed', delay: 0 } },
})
