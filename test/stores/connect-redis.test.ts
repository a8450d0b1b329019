import { createServer } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { connectRedis, whyUnsupported } from '../../src/redis/connect-redis.ts'

/** Speaks just enough of the protocol to be asked for its version. */
async function serverThatSays(info: string): Promise<string> {
  const server = createServer(socket => {
    socket.on('data', chunk => {
      for (const [, name] of String(chunk).matchAll(/\*\d+\r\n\$\d+\r\n(\w+)\r\n/g)) {
        const isInfo = name?.toLowerCase() === 'info'
        socket.write(isInfo ? `$${info.length}\r\n${info}\r\n` : name === 'hello' ? '%0\r\n' : '+OK\r\n')
      }
    })
  })
  onTestFinished(() => void server.close())
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return `redis://127.0.0.1:${(server.address() as { port: number }).port}`
}

it('connectRedis refuses a server that is too old, saying what is needed', async () => {
  const url = await serverThatSays('# Server\r\nredis_version:6.2.14\r\n')
  await expect(connectRedis(url)).rejects.toMatchObject({
    code: 'STORE_UNSUPPORTED',
    message: 'Redis 6.2.14 is not supported: longshore needs Redis 7.0 or newer, or Valkey 7.2 or newer',
  })
})

it('connectRedis returns a client of a server that is new enough', async () => {
  const url = await serverThatSays('# Server\r\nredis_version:7.0.0\r\n')
  const client = await connectRedis(url)
  expect(client.status).toBe('ready')
  client.disconnect()
})

it('Valkey is judged by its own version, not by the Redis version it claims', () => {
  expect(whyUnsupported({ product: 'Valkey', version: '7.2.5' })).toBeUndefined()
  expect(whyUnsupported({ product: 'Valkey', version: '7.1.9' })).toMatch(/Valkey 7\.1\.9/)
  expect(whyUnsupported({ product: 'Redis', version: '10.0.1' })).toBeUndefined()
  expect(whyUnsupported({ product: 'Redis', version: 'of unknown version' })).toMatch(/not supported/)
})
