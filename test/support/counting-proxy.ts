/** A TCP proxy in front of a store that counts what clients ask of it: statements of Postgres, commands of Redis. */
import { once } from 'node:events'
import { createServer, connect as dial, type Socket } from 'node:net'

export interface CountingProxy {
  /** The given connection string, through the proxy. */
  readonly url: string
  /** What was asked so far, by statement text or command. */
  readonly counts: ReadonlyMap<string, number>
  /** Begin at zero. */
  reset(): void
  close(): Promise<void>
}

/** Takes whole messages off the front; answers what is left of the bytes. */
type Parse = (bytes: Buffer) => Buffer

export const countStatements = (url: string) => startCountingProxy(url, parsePostgres)
export const countCommands = (url: string) => startCountingProxy(url, parseRedis)

async function startCountingProxy(
  targetUrl: string,
  begin: (count: (what: string) => void) => Parse,
): Promise<CountingProxy> {
  const target = new URL(targetUrl)
  const sockets = new Set<Socket>()
  const counts = new Map<string, number>()
  const server = createServer(client => {
    const upstream = dial(Number(target.port), target.hostname)
    const parse = begin(what => counts.set(what, (counts.get(what) ?? 0) + 1))
    let unread: Buffer = Buffer.alloc(0)
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => other.destroy())
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
    }
    client.on('data', chunk => {
      upstream.write(chunk)
      unread = parse(unread.length > 0 ? Buffer.concat([unread, chunk]) : chunk)
    })
    upstream.on('data', chunk => client.write(chunk))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
  const url = new URL(targetUrl)
  url.port = String(address.port)
  return {
    url: url.href,
    counts,
    reset: () => counts.clear(),
    async close() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

/** A statement is a simple query, or the execution of what was parsed under a name. */
function parsePostgres(count: (what: string) => void): Parse {
  let hasStarted = false
  let bound = ''
  const texts = new Map<string, string>()
  const textAt = (bytes: Buffer, at: number) => bytes.toString('utf8', at, bytes.indexOf(0, at))
  return bytes => {
    let left = bytes
    for (;;) {
      const head = hasStarted ? 1 : 0
      if (left.length < head + 4) return left
      const end = head + left.readInt32BE(head)
      if (left.length < end) return left
      const message = left.subarray(0, end)
      left = left.subarray(end)
      if (!hasStarted) {
        hasStarted = true
        continue
      }
      const name = textAt(message, 5)
      switch (String.fromCharCode(message[0] ?? 0)) {
        case 'Q':
          count(name)
          break
        case 'P':
          texts.set(name, textAt(message, 5 + Buffer.byteLength(name) + 1))
          break
        case 'B':
          bound = textAt(message, 5 + Buffer.byteLength(name) + 1)
          break
        case 'E':
          count(texts.get(bound) ?? bound)
      }
    }
  }
}

/** A command is an array of texts; a script is named by its hash. */
function parseRedis(count: (what: string) => void): Parse {
  return bytes => {
    let at = 0
    const line = () => {
      const end = bytes.indexOf('\r\n', at)
      if (end < 0) return undefined
      const text = bytes.toString('latin1', at, end)
      at = end + 2
      return text
    }
    for (;;) {
      const from = at
      const words: string[] = []
      const size = Number(line()?.slice(1))
      for (let n = 0; n < size; n++) {
        const length = Number(line()?.slice(1))
        if (Number.isNaN(length) || bytes.length < at + length + 2) return bytes.subarray(from)
        if (n < 2) words.push(bytes.toString('latin1', at, at + length))
        at += length + 2
      }
      if (words.length === 0) return bytes.subarray(from)
      const [command = '', first = ''] = words
      count(/^evalsha$/i.test(command) ? first : command.toLowerCase())
    }
  }
}
