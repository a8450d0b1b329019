/** The red side of the model test: without a guard a history must soon part from the model, or the model proves nothing of it. */
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { historyProperty } from '../support/model-history.ts'
import { type Ground, modelGround } from '../support/model-world.ts'
import { useRedis } from '../support/redis.ts'
import { type Weakness, weakened } from '../support/weaken.ts'

const SEED = 1
const HISTORIES = 30

interface Fault {
  fault: string
  weaknesses: Weakness[]
  problem: RegExp
}

const direct: Fault[] = [
  {
    fault: 'a settle does not free the slots of its runs',
    weaknesses: [
      {
        name: 'settle_and_claim',
        remove: 'perform longshore.reopen(longshore.free_slots(v_lanes, v_slots, v_key_slots));',
        replacement: 'null;',
      },
    ],
    problem: /claims|5: /,
  },
  {
    fault: 'a parent that ends counts twice',
    weaknesses: [{ name: 'pass_on', remove: 'count(*) as steps', replacement: '2 * count(*) as steps' }],
    problem: /claims|made ready|should be waiting|pending/,
  },
  {
    fault: 'whom an edge cancels fails',
    weaknesses: [
      {
        name: 'pass_on',
        remove: "case e.policy when 'cancel' then 'cancelled' else",
        replacement: "case when false then 'cancelled' else",
      },
    ],
    problem: /is dependency_failed, and should be cancelled/,
  },
  {
    fault: 'a run that was cancelled succeeds',
    weaknesses: [{ name: 'settle', remove: ' and not j.is_cancelled' }],
    problem: /made ready|is succeeded, and should be cancelled/,
  },
  {
    fault: 'a rescue uses up an attempt',
    weaknesses: [{ name: 'rescue', remove: 'v_job.attempts := v_job.attempts - 1;' }],
    problem: /attempts/,
  },
  {
    fault: 'a worker that is taken for dead claims',
    weaknesses: [
      { name: 'claim', remove: ' and w.dead_at is null', isEverywhere: true },
      { name: 'claim_plain', remove: ' and w.dead_at is null', isEverywhere: true },
    ],
    problem: /claims|dead/,
  },
]

const throughRedis: Fault[] = [
  {
    fault: 'nobody tells the relay of what is to run again',
    weaknesses: [{ name: 'settle_others', remove: 'perform longshore.note_changes(v_ready);' }],
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
      async ({ weaknesses, problem }) => {
        const property = historyProperty(() => ground, { isWithRedis })
        const found = await weakened(database, weaknesses, () =>
          fc.check(property, { seed: SEED, numRuns: HISTORIES, endOnFailure: true }),
        )
        expect(String(found.errorInstance), `after ${found.numRuns} histories`).toMatch(problem)
      },
      600_000,
    )
  })
}

describeFaults(direct, 'straight through Postgres', false)
describeFaults(throughRedis, 'through Redis', true)
