/** A relay that comes after another, which was in the middle of something. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readRelayed } from '../../src/postgres/relay-reads.ts'
import { useDatabase } from '../support/database.ts'
import type { HandWorker } from '../support/hand-worker.ts'
import { auditAll } from '../support/model-compare.ts'
import { passTime } from '../support/model-history.ts'
import { obey, rest } from '../support/model-steps.ts'
import { ABLE, FREE, type Ground, modelGround } from '../support/model-world.ts'
import { useRedis } from '../support/redis.ts'

const database = useDatabase()
const redis = useRedis()
let ground: Ground
beforeAll(async () => {
  ground = await modelGround(database, redis)
})
afterAll(() => ground?.close())

/** Redis knows of a job, and the relay has nothing left to do. */
async function begin() {
  const world = await ground.begin()
  const { id } = await world.producer.enqueue(FREE, 0)
  if (!world.redis) throw new Error('there is no Redis')
  await world.redis.relay.catchUp()
  const generation = async () => (await readRelayed(world.pool, 'longshore', 'default'))?.generation
  return { world, side: world.redis, id, generation }
}

describe('a relay that follows', () => {
  it('[X7] goes on with what Redis holds', async () => {
    const { world, side, generation } = await begin()
    const before = await generation()
    side.relay = await side.lead()
    await rest(world)
    await auditAll(world, 'at rest')
    expect(await generation()).toBe(before)
  })

  it.each(['dies', 'stops'] as const)(
    '[X7] [X2] builds the queue anew if the former one %s before it has read in all lanes of an emptied Redis',
    async how => {
      const { world, side, generation } = await begin()
      await side.client.flushall()
      await side.relay.beat()
      const begun = await generation()
      if (how === 'stops') await side.relay.term.stop()
      side.relay = await side.lead()
      await rest(world)
      await auditAll(world, 'at rest')
      expect(await generation()).not.toBe(begun)
    },
  )

  it('[X7] offers again what a dead worker took, at the latest when it is overdue', async () => {
    const { world, side, id } = await begin()
    const [other, by] = world.workers as [HandWorker, HandWorker]
    expect((await by.begin([], 1)).named?.ids).toEqual([id])
    await obey(world, { do: 'worker dies', worker: 1, facts: ABLE, rescued: 1000 })
    await side.relay.turn()
    await side.relay.turn(() => obey(world, { do: 'relay follows', former: 'goes on' }))
    await rest(world)
    await passTime(world)
    await rest(world)
    expect((await other.begin([], 1)).named?.ids).toEqual([id])
  })
})
