import { Redis } from 'ioredis'
import { afterEach, expect, inject, it } from 'vitest'
import { openRedis } from '../../src/redis/open-redis.ts'
import { startProxy } from '../support/proxy.ts'
import { eventually } from '../support/signals.ts'

const unhandled: unknown[] = []
const note = (reason: unknown) => unhandled.push(reason)
process.on('unhandledRejection', note)
afterEach(() => process.off('unhandledRejection', note))

it('[S10] a subscription that is lost, made anew and given up before its answer leaves no rejection to nobody', async () => {
  const proxy = await startProxy(inject('redisUrl'))
  const store = openRedis(proxy.url, () => undefined) // connections are cut on purpose
  const sender = new Redis(inject('redisUrl'))
  const channel = `open-redis-${process.pid}`
  const heard: string[] = []
  try {
    await store.subscribe([channel], (_, text) => heard.push(text))
    const lost = proxy.loseReplyTo('subscribe')
    proxy.leadTo(inject('redisUrl')) // cuts all connections
    await lost
    store.resubscribe()
    await eventually('it listens again', async () => {
      await sender.publish(channel, 'again')
      return heard.length > 0
    })
    // And after a gap that nobody but the connection notices.
    proxy.leadTo(inject('redisUrl')) // cuts all connections
    heard.length = 0
    await eventually('it listens once more', async () => {
      await sender.publish(channel, 'once more')
      return heard.includes('once more')
    })
    expect(unhandled).toEqual([])
  } finally {
    store.close()
    sender.disconnect()
    await proxy.close()
  }
})
