/** The red side of the model test: without a guard a history must soon part from the model, or the model proves nothing of it. */
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { historyProperty } from '../support/model-history.ts'
import { type Ground, modelGround } from '../support/model-world.ts'
import { useRedis } from '../support/redis.ts'
import { type Weakness, weakened } from '../support/weaken.ts'
import { type ScriptWeakness, weakenedRunner } from '../support/weaken-script.ts'

/** Unless a fault has a seed whose first histories show it. */
const SEED = 2
const HISTORIES = 60

interface Fault {
  fault: string
  seed?: number
  weaknesses?: Weakness[]
  scripts?: ScriptWeakness[]
  problem: RegExp
}

const direct: Fault[] = [
  {
    fault: 'a settle is accepted without its lease token',
    seed: 14,
    weaknesses: [{ name: 'settle', guard: 'own-token' }],
    problem: /settle loses/,
  },
  {
    fault: 'a settle does not free the slots of its runs',
    weaknesses: [
      {
        name: 'settle_and_claim',
        guard: 'free-slots',
        replacement: 'false',
      },
    ],
    problem: /claims|5: /,
  },
  {
    fault: 'a parent that ends counts twice',
    weaknesses: [{ name: 'pass_on', guard: 'count-parents', replacement: '2 * count(*)' }],
    problem: /claims|made ready|should be waiting|pending|violates check constraint/,
  },
  {
    fault: 'parents that end together count as one',
    weaknesses: [{ name: 'pass_on', guard: 'count-parents', replacement: '1' }],
    problem: /claims|made ready|is waiting, and should be|pending/,
  },
  {
    fault: 'a stopped workflow goes on',
    seed: 25,
    weaknesses: [{ name: 'pass_on', guard: 'not-halted' }],
    problem: /claims|made ready|and should be waiting|pending/,
  },
  {
    fault: 'whom an edge cancels fails',
    seed: 12,
    weaknesses: [{ name: 'doom_of', guard: 'cancel-policy', replacement: 'false' }],
    problem: /is dependency_failed, and should be cancelled/,
  },
  {
    fault: 'a run that was cancelled succeeds',
    seed: 10,
    weaknesses: [
      { name: 'move_to_history', guard: 'not-cancelled' },
      { name: 'move_to_history', guard: 'cancelled-ends', replacement: 'false' },
    ],
    problem: /made ready|is succeeded, and should be cancelled/,
  },
  {
    fault: 'a rescue uses up an attempt',
    weaknesses: [{ name: 'rescue', guard: 'attempt-back' }],
    problem: /attempts/,
  },
  {
    fault: 'a worker that is taken for dead claims',
    seed: 28,
    weaknesses: [
      { name: 'claim', guard: 'alive' },
      { name: 'claim_these', guard: 'alive' },
    ],
    problem: /claims|dead/,
  },
  {
    fault: 'a lane is deleted although it has a job that waits or runs',
    weaknesses: [{ name: 'forget_lanes', guard: 'clear-busy' }],
    problem: /is undefined, and should be|its lane \d+ does not exist/,
  },
  // A minute of histories, with `npm run test:all`; flow/red-forgetting shows it in the gate.
  ...(process.env['LONGSHORE_ALL']
    ? [
        {
          fault: 'a lane is deleted although it was used again',
          weaknesses: [{ name: 'use_lane', guard: 'note-use' }],
          problem: /is undefined, and should be|its lane \d+ does not exist/,
        },
      ]
    : []),
]

const throughRedis: Fault[] = [
  {
    fault: 'a job that Redis names is claimed, whatever its state',
    weaknesses: [{ name: 'claim_these', guard: 'still-ready' }],
    problem: /claims|violates check constraint/,
  },
  {
    fault: 'nobody tells the relay of what is to run again',
    seed: 9,
    weaknesses: [{ name: 'settle_unsuccessful', guard: 'tell-relay' }],
    problem: /10: /,
  },
  {
    fault: 'a job that is put back does not go home',
    seed: 36,
    scripts: [
      { remove: "place(id, number, score, token, 'hint')" },
      { remove: "place(id, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], 'hint')" },
    ],
    problem: /10: /,
  },
]

function describeFaults(faults: readonly Fault[], name: string, isWithRedis: boolean): void {
  describe(`the model finds out, ${name}, that`, () => {
    const database = useDatabase()
    const redis = isWithRedis ? useRedis() : undefined
    let ground: Ground
    beforeAll(async () => {
      ground = await modelGround(database, redis)
    })
    afterAll(() => ground?.close())

    it.each(faults)(
      '$fault',
      async ({ seed = SEED, weaknesses = [], scripts, problem }) => {
        const runner = scripts && redis && weakenedRunner(redis.store, scripts)
        const property = historyProperty(() => ground, { isWithRedis, runner })
        const found = await weakened(database, weaknesses, () =>
          fc.check(property, { seed, numRuns: HISTORIES, endOnFailure: true }),
        )
        expect(String(found.errorInstance), `after ${found.numRuns} histories`).toMatch(problem)
      },
      600_000,
    )
  })
}

describeFaults(direct, 'directly through Postgres', false)
describeFaults(throughRedis, 'through Redis', true)
