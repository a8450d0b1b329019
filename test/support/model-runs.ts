/** Runs random histories for a while, tells the seed first and last, and repeats what it is told to. */
import { randomInt } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, beforeAll } from 'vitest'
import type { TestDatabase } from './database.ts'
import { historyProperty } from './model-history.ts'
import { type Ground, modelGround } from './model-world.ts'
import type { TestRedis } from './redis.ts'

/** Of one file, unless a number of runs is given. Longer with `npm run test:all`. */
const ENOUGH_MS = process.env['LONGSHORE_ALL'] ? 120_000 : 15_000
/** The gate runs the same histories each time, so that it tells of the change at hand. `npm run test:all` looks for new ones. */
const GATE_SEED = 20261118

export interface ModelRuns {
  /** Throws with the shrunk history. Answers how many there were. */
  check(): Promise<number>
}

export function useModelRuns(database: TestDatabase, redis?: TestRedis): ModelRuns {
  let ground: Ground
  beforeAll(async () => {
    ground = await modelGround(database, redis)
  })
  afterAll(() => ground?.close())
  const { LONGSHORE_SEED, LONGSHORE_RUNS, LONGSHORE_PATH, LONGSHORE_REPLAY } = process.env
  const isLooking = process.env['LONGSHORE_ALL'] !== undefined || LONGSHORE_RUNS !== undefined
  const seed = Number(LONGSHORE_SEED ?? (isLooking ? randomInt(2 ** 31) : GATE_SEED))
  const where = redis ? 'through Redis' : 'direct'

  return {
    async check() {
      process.stdout.write(`model ${where}: LONGSHORE_SEED=${seed}\n`)
      const began = performance.now()
      let ran = 0
      let last: Promise<void> | undefined
      const property = historyProperty(() => ground, {
        isWithRedis: redis !== undefined,
        replayPath: LONGSHORE_REPLAY,
        onHistory: history => {
          ran++
          last = history
        },
      })
      await fc.assert(property, {
        seed,
        ...(LONGSHORE_PATH
          ? // A history that passes now is followed by those that it would have been shrunk to.
            { path: LONGSHORE_PATH, numRuns: 1, endOnFailure: true, interruptAfterTimeLimit: 5_000 }
          : LONGSHORE_RUNS
            ? { numRuns: Number(LONGSHORE_RUNS) }
            : { numRuns: 1_000_000, interruptAfterTimeLimit: ENOUGH_MS }),
      })
      await last // the time limit leaves one behind
      const seconds = (performance.now() - began) / 1000
      process.stdout.write(
        `model ${where}: ${ran} histories in ${seconds.toFixed(1)} s, ${(ran / seconds).toFixed(1)} a second\n`,
      )
      return ran
    },
  }
}
