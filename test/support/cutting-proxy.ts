/**
 * A TCP proxy in front of a store that can lose a reply (the server has done its work, the client never learns), hold
 * everything back as a broken network does, and lead somewhere else.
 */

import { once } from 'node:events'
import { createServer, connect as dial, type Server, type Socket } from 'node:net'

export interface CuttingProxy {
  /** The given connection string, through the proxy. */
  readonly url: string
  /**
   * From now on wait for a request that contains `text`; when the server answers it, swallow the answer and cut the
   * connection. Resolves when that has happened. Other connections are left alone. With `after`, only a connection that has
   * sent that before is meant.
   */
  loseReplyTo(text: string, after?: string): Promise<void>
  /** The same, but the request never reaches the server. */
  loseRequest(text: string, after?: string): Promise<void>
  /** From now on nothing arrives, in either direction; connections stay open, and new ones get no answer. */
  holdAll(): void
  /** Everything flows again, also what was held back. */
  letFlow(): void
  /** Cut all connections; new ones lead to this server. */
  leadTo(targetUrl: string): void
  close(): Promise<void>
}

export async function startCuttingProxy(targetUrl: string): Promise<CuttingProxy> {
  let target = new URL(targetUrl)
  let isHeld = false
  const sockets = new Set<Socket>()
  let watched: { text: string; after: string; isForwarded: boolean; onCut: () => void } | undefined

  const server: Server = createServer(client => {
    const upstream = dial(Number(target.port), target.hostname)
    let cut: (() => void) | undefined
    let sent = ''
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('close', () => sockets.delete(socket))
    }
    // A socket that is paused before it is read from stays so.
    if (isHeld) for (const socket of [client, upstream]) socket.pause()
    client.on('error', () => upstream.destroy())
    upstream.on('error', () => client.destroy())
    client.on('close', () => upstream.destroy())
    upstream.on('close', () => client.destroy())
    client.on('data', chunk => {
      sent = (sent + chunk.toString('latin1')).slice(-65_536)
      if (watched && chunk.includes(watched.text) && sent.includes(watched.after)) {
        const { isForwarded, onCut } = watched
        watched = undefined
        if (!isForwarded) {
          client.destroy()
          upstream.destroy()
          return onCut()
        }
        cut = onCut
      }
      upstream.write(chunk)
    })
    upstream.on('data', chunk => {
      if (!cut) return client.write(chunk)
      client.destroy()
      upstream.destroy()
      cut()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
  const url = new URL(targetUrl)
  url.port = String(address.port)

  return {
    url: url.href,
    loseReplyTo: (text, after = '') =>
      new Promise(resolve => {
        watched = { text, after, isForwarded: true, onCut: resolve }
      }),
    loseRequest: (text, after = '') =>
      new Promise(resolve => {
        watched = { text, after, isForwarded: false, onCut: resolve }
      }),
    holdAll() {
      isHeld = true
      for (const socket of sockets) socket.pause()
    },
    letFlow() {
      isHeld = false
      for (const socket of sockets) socket.resume()
    },
    leadTo(url) {
      target = new URL(url)
      for (const socket of sockets) socket.destroy()
    },
    async close() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}
