/** A proxy in front of a store that counts what clients ask of it: statements of Postgres, commands of Redis. */
import { type StoreProxy, startProxy } from './proxy.ts'

export interface CountingProxy extends StoreProxy {
  /** What was asked so far, by statement text or command. */
  readonly counts: ReadonlyMap<string, number>
  /** Begin at zero. */
  reset(): void
}

/** Takes whole messages off the front; answers what is left of the bytes. */
type Parse = (bytes: Buffer) => Buffer

export const countStatements = (url: string) => startCountingProxy(url, parsePostgres)
export const countCommands = (url: string) => startCountingProxy(url, parseRedis)

async function startCountingProxy(
  targetUrl: string,
  begin: (count: (what: string) => void) => Parse,
): Promise<CountingProxy> {
  const counts = new Map<string, number>()
  const proxy = await startProxy(targetUrl, () => {
    const parse = begin(what => counts.set(what, (counts.get(what) ?? 0) + 1))
    let unread: Buffer = Buffer.alloc(0)
    return chunk => {
      unread = parse(unread.length > 0 ? Buffer.concat([unread, chunk]) : chunk)
    }
  })
  return Object.assign(proxy, { counts, reset: () => counts.clear() })
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
