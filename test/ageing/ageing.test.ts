/**
 * A year of tenants, queue names, deploys, workers and groups, in a minute: what is left of it is what the last day has left, beside
 * a deployment that has only seen that day. With `npm run test:all` the rounds are more and larger.
 */
import { describe, expect, it } from 'vitest'
import { type Deployment, oldDeployment, type Round } from '../support/ageing.ts'
import { useDatabase } from '../support/database.ts'
import { useRedis } from '../support/redis.ts'
import { eventually } from '../support/signals.ts'

const isAll = process.env['LONGSHORE_ALL'] !== undefined
const ROUNDS = isAll ? 9 : 3
const ROUND: Round = isAll ? { tenants: 200, queues: 10, groups: 20 } : { tenants: 15, queues: 3, groups: 3 }
const MOST_MS = isAll ? 600_000 : 180_000
/** More than anything that is not used is kept. */
const DAYS = 41

const oldOne = useDatabase()
const freshOne = useDatabase()
const redis = useRedis()

/** Whatever the relay has left to forget is forgotten soon. */
const settled = async (deployment: Deployment, wanted: Record<string, number>) => {
  let last: Record<string, number> = {}
  await eventually('it is as large as a fresh one', async () => {
    last = await deployment.counts()
    return Object.entries(wanted).every(([name, count]) => last[name] === count)
  }).catch(() => undefined)
  return last
}
/** Until the relay has forgotten the queues of which the last workers have left. */
const atRest = async (deployment: Deployment) => {
  let last: Record<string, number> = {}
  await eventually('only the queue is left that a worker serves', async () => {
    last = await deployment.counts()
    return (last['relay: queues'] ?? 1) === 1 && (last['relayed'] ?? 0) <= 1
  })
  return last
}

describe.each(['direct', 'through Redis'] as const)('a deployment that has grown old, %s', way => {
  it(
    '[X12] is as large as one that has only seen the last day, and everything that it keeps agrees',
    async () => {
      const through = way === 'direct' ? undefined : redis
      const fresh = await oldDeployment(freshOne, through)
      let wanted: Record<string, number>
      try {
        await fresh.pass(DAYS)
        await fresh.work(ROUNDS, ROUND)
        wanted = await atRest(fresh)
      } finally {
        await fresh.close()
      }
      const old = await oldDeployment(oldOne, through)
      try {
        for (let round = 1; round <= ROUNDS; round++) {
          await old.pass(DAYS)
          await old.work(round, ROUND)
        }
        const left = await settled(old, wanted)
        expect(left).toEqual(wanted)
        const made = await old.made()
        const forgotten = Object.fromEntries(
          (['lanes', 'limits', 'workers'] as const).map(name => [name, made[name] - (left[name] ?? 0)]),
        )
        if (isAll) console.info(`${way}: forgotten`, forgotten, 'left', left)
        expect(forgotten['lanes']).toBeGreaterThanOrEqual((ROUNDS - 1) * (ROUND.tenants + ROUND.queues))
        expect(forgotten['limits']).toBeGreaterThanOrEqual((ROUNDS - 1) * ROUND.tenants)
        expect(await old.violations()).toEqual([])
      } finally {
        await old.close()
      }
    },
    MOST_MS,
  )
})
