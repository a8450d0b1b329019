import { connect, type Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type MetricsServer, serveMetrics } from '../../src/runtime/metrics-server.ts'
import { gate } from '../support/signals.ts'

let server: MetricsServer
let sockets: Socket[] = []
let isReady = true
let rendered = 0
let failure: Error | undefined
let mayRender: Promise<unknown> = Promise.resolve()

beforeEach(async () => {
  isReady = true
  rendered = 0
  mayRender = Promise.resolve()
  server = await serveMetrics({
    port: 0,
    host: '127.0.0.1',
    prometheus: async () => {
      rendered++
      await mayRender
      if (failure) throw failure
      return { contentType: 'text/plain; version=0.0.4', text: 'figures\n' }
    },
    health: async () => ({
      isReady,
      state: 'running',
      postgres: 'up',
      redis: 'not used',
      locks: 'free',
      upkeep: 'well',
    }),
  })
})
afterEach(async () => {
  for (const socket of sockets) socket.destroy()
  sockets = []
  await server.close()
})

const at = (path: string) => server.url.replace('/metrics', path)

/** Resolves to all that the server says when it has cut the connection. */
function raw(text: string): { ended: Promise<string> } {
  const socket = connect(Number(new URL(server.url).port), '127.0.0.1')
  sockets.push(socket)
  let said = ''
  socket.on('data', chunk => {
    said += chunk
  })
  socket.on('error', () => undefined) // cut off
  socket.write(text)
  return { ended: new Promise(resolve => socket.on('close', () => resolve(said))) }
}

describe('the endpoint', () => {
  it('serves metrics, life and readiness', async () => {
    const metrics = await fetch(server.url)
    expect([metrics.status, metrics.headers.get('content-type'), await metrics.text()]).toEqual([
      200,
      'text/plain; version=0.0.4',
      'figures\n',
    ])
    expect(await (await fetch(at('/healthz?verbose'))).json()).toEqual({ isAlive: true })
    const ready = await fetch(at('/readyz'))
    expect(ready.headers.get('content-type')).toBe('application/json')
    expect([ready.status, await ready.json()]).toEqual([
      200,
      { isReady: true, state: 'running', postgres: 'up', redis: 'not used', locks: 'free', upkeep: 'well' },
    ])
    isReady = false
    expect((await fetch(at('/readyz'))).status).toBe(503)
  })

  it('answers HEAD without a body, no other method, and no other path', async () => {
    const head = await fetch(server.url, { method: 'HEAD' })
    expect([head.status, head.headers.get('content-length'), await head.text()]).toEqual([200, '8', ''])
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS']) {
      const refused = await fetch(at('/readyz'), { method })
      expect([method, refused.status, refused.headers.get('allow')]).toEqual([method, 405, 'GET, HEAD'])
    }
    for (const path of [
      '/',
      '/metrics/',
      '/metricsx',
      '/__proto__',
      '/constructor',
      '//metrics',
      '/healthz%20',
    ])
      expect([path, (await fetch(at(path))).status]).toEqual([path, 404])
  })

  it('tells nothing of what went wrong', async () => {
    failure = new Error('hush')
    const failed = await fetch(server.url)
    expect(failed.status).toBe(500)
    expect(await failed.text()).not.toContain('hush')
    failure = undefined
    expect((await fetch(server.url)).status).toBe(200)
  })

  it('finds an answer once for all who ask meanwhile', async () => {
    const open = gate()
    mayRender = open.opened
    const all = Array.from({ length: 20 }, () => fetch(server.url))
    // Asked behind them; and it needs none of what they wait for.
    expect((await fetch(at('/healthz'))).status).toBe(200)
    open.open()
    expect((await Promise.all(all)).map(({ status }) => status)).toEqual(Array(20).fill(200))
    expect(rendered).toBe(1)
  })

  it('cuts off whoever is slow, says too much, or nothing', async () => {
    const silent = raw('')
    const slow = raw('GET /metrics HTTP/1.1\r\nhost: x\r\n')
    const endless = raw('POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n')
    const long = raw(`GET /metrics HTTP/1.1\r\nhost: ${'x'.repeat(20_000)}\r\n\r\n`)
    expect(await long.ended).toContain(' 431 ')
    expect(await endless.ended).toContain(' 405 ')
    expect(await slow.ended).toContain(' 408 ')
    await silent.ended
    expect((await fetch(server.url)).status).toBe(200)
  })

  it('outlives a crowd that holds connections', async () => {
    const crowd = Array.from({ length: 300 }, () => raw('GET /'))
    await Promise.all(crowd.map(({ ended }) => ended))
    expect((await fetch(server.url)).status).toBe(200)
  })

  it('refuses a port or an address that is not to be had, and says what to do', async () => {
    const also = (port: number, host: string) =>
      serveMetrics({
        port,
        host,
        prometheus: () => Promise.reject(new Error()),
        health: () => Promise.reject(new Error()),
      })
    const port = Number(new URL(server.url).port)
    await expect(also(port, '127.0.0.1')).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(
        /^metrics cannot be served on port \d+ of 127\.0\.0\.1: .*EADDRINUSE.*Choose another port/,
      ),
    })
    await expect(also(0, '203.0.113.1')).rejects.toMatchObject({ code: 'CONFIG_INVALID' })
  })
})
