import { expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { hintChannel } from '../../src/redis/names.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useRedis } from '../support/own-redis.ts'
import { counter, eventually } from '../support/signals.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, { redis })

const task = defineTask<number>({ name: 'anything' })

it('[S10] a bell that nobody heard is found without a person, also by the only worker there is', async () => {
  const done = counter()
  const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
  const producer = deployment.producer({ tasks: [task], redis: redis.url })
  await producer.enqueue(task, 0)
  await done.reached(1)
  for (let round = 2; round <= 4; round++) {
    await eventually('it waits to be rung', async () => {
      const idle = await redis.command('ZCARD', await redis.key(database, 'idle'))
      return idle === 1 && worker.path === 'redis'
    })
    // Either the bell or the connection that it came on is lost.
    const cut = redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub')
    await Promise.all([cut, producer.enqueue(task, round)])
    await done.reached(round)
  }
  await deployment.atRest()
  expect(await deployment.runs()).toHaveLength(4)
})

it('[S10] a bell that was swallowed on the way is found, though every connection is well', async () => {
  const done = counter()
  await deployment.worker({ handlers: [task.handle(() => done.add())] })
  const producer = deployment.producer({ tasks: [task] })
  await producer.enqueue(task, 0)
  await done.reached(1)
  const [idle, rung] = [await redis.key(database, 'idle'), await redis.key(database, 'rung')]
  await eventually('it waits to be rung', async () => (await redis.command('ZCARD', idle)) === 1)
  // As `ring` does it, without the bell.
  await redis.command(
    'ZADD',
    rung,
    String(Date.now()),
    ((await redis.command('ZRANGE', idle, '0', '0')) as string[])[0] ?? '',
  )
  await redis.command('DEL', idle)
  await producer.enqueue(task, 1)
  await done.reached(2)
  await deployment.atRest()
})

it('[S10] a relay whose listening connection is half open hears producers again', async () => {
  const relay = await deployment.relay()
  await eventually('it leads', async () => relay.metrics().isLeader)
  const channel = hintChannel((await redis.rootKey(database)).split(':')[1] ?? '')
  // A hint that makes no sense is counted.
  let told = 0
  const tell = async () => {
    told += Number(await redis.command('PUBLISH', channel, 'nonsense'))
  }
  await eventually('it listens', async () => {
    if (told === 0) await tell()
    return told === 1 && relay.metrics().ignoredHints === 1
  })
  const passesBy = redis.proxy.hearsReply('nonsense')
  redis.proxy.swallow('replies')
  await tell()
  await passesBy
  redis.proxy.letFlow()
  await eventually('it hears again', async () => {
    await tell()
    return relay.metrics().ignoredHints > 1
  })
})
