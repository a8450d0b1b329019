/** As forgotten-limits.test.ts, with jobs that go through Redis, which may still know a limit that Postgres has forgotten. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useRedis } from '../support/redis.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, {
  redis: {
    get url() {
      return redis.server.url
    },
  },
})
const keyed = defineTask<number>({ name: 'keyed', concurrencyPerKey: 1 })

describe('a limit that is forgotten', () => {
  it('[X12] [L1] holds for the jobs of a key that comes back, and all of them run', async () => {
    await deployment.relay()
    const producer = deployment.producer({ tasks: [keyed] })
    let [running, most, ended] = [0, 0, 0]
    await deployment.worker({
      handlers: [
        keyed.handle(async () => {
          most = Math.max(most, ++running)
          await new Promise(resolve => setImmediate(resolve))
          running--
          ended++
        }),
      ],
    })
    for (let round = 1; round <= 3; round++) {
      await producer.enqueueMany(keyed, [1, 2, 3, 4, 5], { concurrencyKey: 'a' })
      await eventually('all have run', async () => ended === 5 * round)
      await eventually('nothing is left to do', async () => {
        const left = await database.rows('select from longshore.jobs union all select from longshore.outbox')
        return left.length === 0
      })
      await eventually('the limit is forgotten', async () => {
        await database.rows(
          'update longshore.limit_looks set done_to = 0, idle_since = pg_snapshot_xmax(pg_current_snapshot())',
        )
        await database.rows('select longshore.forget_limits(0)')
        return (await database.rows("select from longshore.limits where key <> ''")).length === 0
      })
    }
    expect(most).toBe(1)
    expect(await deployment.violations()).toEqual([])
  })
})
