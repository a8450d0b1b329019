/**
 * A TCP proxy in front of a store, Postgres or Redis, for what networks do: it loses a request or the reply to it (the server has
 * done its work, the client never learns), holds everything back, swallows one direction, is slow, and leads somewhere else.
 */
import { once } from 'node:events'
import { createServer, connect as dial, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'

type Direction = 'requests' | 'replies'

export interface StoreProxy {
  /** The given connection string, through the proxy. */
  readonly url: string
  /** Connections that clients have asked for so far. */
  readonly dials: number
  /**
   * From now on wait for a request that contains `text`; when the server answers it, swallow the answer and cut the
   * connection. Resolves when that has happened. Other connections are left alone. With `after`, only a connection that has
   * sent that before is meant.
   */
  loseReplyTo(text: string, after?: string): Promise<void>
  /** The same, but the request never reaches the server. */
  loseRequest(text: string, after?: string): Promise<void>
  /** The same, but the request, and all of its connection, is held back until `letFlow`. */
  holdRequest(text: string, after?: string): Promise<void>
  /** Resolves when the server has said this to somebody. */
  hearsReply(text: string): Promise<void>
  /** From now on nothing arrives, in either direction; connections stay open, and new ones get no answer. */
  holdAll(): void
  /**
   * Half open: what goes this way is swallowed without a word, also that somebody has hung up. A connection that has lost
   * something stays so for ever, as one that a router has forgotten.
   */
  swallow(direction: Direction): void
  /** Everything arrives so much later, in either direction. */
  delay(ms: number): void
  /** Everything flows again, also what was held back. */
  letFlow(): void
  /** Cut all connections; new ones lead to this server. */
  leadTo(targetUrl: string): void
  close(): Promise<void>
}

interface Watch {
  text: string
  after: string
  then: 'lose reply' | 'lose request' | 'hold'
  done: () => void
}

/** `listen` is called for each connection, and what it returns with all that the client sends. */
export async function startProxy(
  targetUrl: string,
  listen?: () => (chunk: Buffer) => void,
): Promise<StoreProxy> {
  let target = new URL(targetUrl)
  let isHeld = false
  let delayMs = 0
  let dials = 0
  let watch: Watch | undefined
  let hears: { text: string; done: () => void } | undefined
  const swallowed = new Set<Direction>()
  const sockets = new Set<Socket>()
  /** Requests that `holdRequest` has stopped: sends them on. */
  const held: (() => void)[] = []

  /** One direction of one connection. */
  const pipe = (direction: Direction, from: Socket, to: Socket) => {
    let isLost = false
    let waiting = 0
    let last: Promise<unknown> = Promise.resolve()
    sockets.add(from)
    from.setNoDelay(true)
    // A socket that is paused before it is read from stays so.
    if (isHeld) from.pause()
    from.on('error', () => undefined) // its close follows
    from.on('close', () => {
      sockets.delete(from)
      isLost ||= swallowed.has(direction)
      if (!isLost) to.destroy()
    })
    return (chunk: Buffer) => {
      isLost ||= swallowed.has(direction)
      if (isLost) return
      if (delayMs === 0 && waiting === 0) return void to.write(chunk)
      const due = performance.now() + delayMs
      waiting++
      last = last
        .then(() => pause(Math.max(0, due - performance.now())))
        .then(() => {
          waiting--
          if (!to.destroyed) to.write(chunk)
        })
    }
  }

  const server = createServer(client => {
    dials++
    const upstream = dial(Number(target.port), target.hostname)
    const [ask, answer] = [pipe('requests', client, upstream), pipe('replies', upstream, client)]
    const heard = listen?.()
    let cut: (() => void) | undefined
    let sent = ''
    client.on('data', chunk => {
      heard?.(chunk)
      sent = (sent + chunk.toString('latin1')).slice(-65_536)
      if (!watch || !chunk.includes(watch.text) || !sent.includes(watch.after)) return ask(chunk)
      const { then, done } = watch
      watch = undefined
      if (then === 'lose reply') {
        cut = done
        return ask(chunk)
      }
      if (then === 'hold') {
        client.pause()
        held.push(() => ask(chunk))
      } else {
        client.destroy()
        upstream.destroy()
      }
      done()
    })
    upstream.on('data', chunk => {
      if (hears && chunk.includes(hears.text)) hears.done()
      if (!cut) return answer(chunk)
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

  const watchFor = (then: Watch['then'], text: string, after = '') =>
    new Promise<void>(done => {
      watch = { text, after, then, done }
    })
  return {
    url: url.href,
    get dials() {
      return dials
    },
    loseReplyTo: (text, after) => watchFor('lose reply', text, after),
    loseRequest: (text, after) => watchFor('lose request', text, after),
    holdRequest: (text, after) => watchFor('hold', text, after),
    hearsReply: text =>
      new Promise(done => {
        hears = { text, done }
      }),
    holdAll() {
      isHeld = true
      for (const socket of sockets) socket.pause()
    },
    swallow(direction) {
      swallowed.add(direction)
    },
    delay(ms) {
      delayMs = ms
    },
    letFlow() {
      isHeld = false
      delayMs = 0
      swallowed.clear()
      for (const send of held.splice(0)) send()
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
