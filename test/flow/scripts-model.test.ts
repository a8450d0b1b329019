/** The scripts against the model of their rule, over random histories. `LONGSHORE_SEED` repeats one. */
import { randomInt } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import type { Spread } from '../../src/redis/queue-index.ts'
import { runHistory } from '../support/index-history.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis()
const given = process.env['LONGSHORE_SEED']
const HISTORIES = 6
const STEPS = 250
/** For each spread, on slow servers. */
const ENOUGH_MS = 3000

const spreads: [string, Spread, crowd?: boolean][] = [
  ['fanout', { width: 0, strategy: 'least-queue' }],
  ['fanout to a crowd', { width: 0, strategy: 'least-queue' }, true],
  ['one of a crowd by least-queue', { width: 1, strategy: 'least-queue' }, true],
  ['one by least-queue', { width: 1, strategy: 'least-queue' }],
  ['one by round-robin', { width: 1, strategy: 'round-robin' }],
  ['two by least-queue', { width: 2, strategy: 'least-queue' }],
  ['one by random', { width: 1, strategy: 'random' }],
]

describe('random histories', () => {
  it.each(spreads)(
    '[D5] %s: takes answer what the rule says, and the content keeps it',
    async (_, spread, crowd = false) => {
      const enoughAt = performance.now() + ENOUGH_MS
      for (let history = 0; history < HISTORIES; history++) {
        if (history > 0 && performance.now() > enoughAt) break
        const seed = given === undefined ? randomInt(2 ** 31) : Number(given) + history
        const problems = await runHistory(redis, `${redis.deployment}-${history}`, {
          seed,
          steps: STEPS,
          spread,
          crowd,
        })
        expect(problems, `LONGSHORE_SEED=${seed}`).toEqual([])
      }
    },
  )
})
