/**
 * Owns what a log line may hold: whatever a handler gives becomes a bounded text or bounded JSON that Postgres can store. The
 * work is bounded too: no more of a large value is looked at than is kept.
 */
import { storable } from './stored-error.ts'

const MESSAGE_LENGTH = 4000
/** Characters of data: of keys, texts and numbers together. */
const DATA_LENGTH = 8000
const MOST_DEPTH = 8
const CUT = '…'

export interface LoggedMessage {
  text: string
  isCut: boolean
}

export function toLogMessage(given: unknown): LoggedMessage {
  const text = storable(typeof given === 'string' ? given : inWords(given), MESSAGE_LENGTH)
  return { text, isCut: text !== given }
}

/** Asking a hostile object may throw anywhere. */
function inWords(given: unknown): string {
  try {
    return given instanceof Error ? String(given.message) : (toLogData(given).text ?? String(given))
  } catch {
    return 'something that cannot be told in words'
  }
}

/** JSON text, or null when there is no data. */
export function toLogData(given: unknown): { text: string | null; isCut: boolean } {
  if (given === undefined) return { text: null, isCut: false }
  const copy = new Copy()
  const text = JSON.stringify(copy.of(given, 0)) as string | undefined
  return { text: text ?? null, isCut: copy.isCut }
}

/** Takes what JSON can hold, and words where it cannot, until the room is used up. */
class Copy {
  isCut = false
  #left = DATA_LENGTH
  readonly #above: object[] = []

  of(value: unknown, depth: number): unknown {
    switch (typeof value) {
      case 'string':
        return this.#text(value)
      case 'number':
        this.#left -= 8
        return Number.isFinite(value) ? value : this.#instead(String(value))
      case 'boolean':
        this.#left -= 5
        return value
      case 'undefined':
        return undefined
      case 'object':
        return value === null ? null : this.#object(value, depth)
      case 'bigint':
        return this.#text(String(value))
      default:
        return this.#instead(`[${typeof value}]`)
    }
  }

  #text(value: string): string {
    const kept = storable(value, Math.max(1, this.#left))
    if (kept !== value) this.isCut = true
    this.#left -= kept.length
    return kept
  }

  #instead(words: string): string {
    this.isCut = true
    this.#left -= words.length
    return words
  }

  #object(value: object, depth: number): unknown {
    if (this.#above.includes(value)) return this.#instead('[circular]')
    if (depth >= MOST_DEPTH) return this.#instead(CUT)
    this.#above.push(value)
    try {
      return this.#contents(value, depth)
    } catch {
      return this.#instead('[it threw when it was looked at]')
    } finally {
      this.#above.pop()
    }
  }

  #contents(value: object, depth: number): unknown {
    if (value instanceof Error) return this.#entries(errorEntries(value), depth)
    if (ArrayBuffer.isView(value)) return this.#instead(`[${value.byteLength} bytes]`)
    if (Array.isArray(value) || value instanceof Set) return this.#list(value, depth)
    if (value instanceof Map) return this.#entries(value, depth)
    const { toJSON } = value as { toJSON?: unknown }
    if (typeof toJSON === 'function') return this.of(toJSON.call(value), depth + 1)
    return this.#entries(ownEntries(value), depth)
  }

  #list(items: Iterable<unknown>, depth: number): unknown[] {
    const list: unknown[] = []
    for (const item of items) {
      if (this.#isFull()) {
        list.push(CUT)
        break
      }
      list.push(this.of(item, depth + 1) ?? null)
    }
    return list
  }

  #entries(entries: Iterable<readonly [unknown, unknown]>, depth: number): object {
    const copy: Record<string, unknown> = Object.create(null) // `__proto__` is a key like any other
    for (const [key, item] of entries) {
      if (this.#isFull()) {
        copy[CUT] = CUT
        break
      }
      copy[this.#text(typeof key === 'string' ? key : String(key))] = this.of(item, depth + 1)
    }
    return copy
  }

  #isFull(): boolean {
    this.#left -= 2
    if (this.#left > 0) return false
    this.isCut = true
    return true
  }
}

/** One by one: of a huge object only the first are asked for. */
function* ownEntries(value: object): Generator<[string, unknown]> {
  for (const key in value) {
    if (Object.hasOwn(value, key)) yield [key, (value as Record<string, unknown>)[key]]
  }
}

/** What JSON would leave out. */
function* errorEntries(error: Error): Generator<[string, unknown]> {
  yield ['name', error.name]
  yield ['message', error.message]
  yield* ownEntries(error)
  if (error.cause !== undefined) yield ['cause', error.cause]
  yield ['stack', error.stack]
}
