/**
 * Owns job ids: UUIDv7, made by the client, ascending within a process. 48 bits of milliseconds, a 31-bit counter that
 * starts at random in each millisecond, and 43 random bits; the clock going back only stops the milliseconds.
 */
import { getRandomValues } from 'node:crypto'
import { LongshoreError } from './errors.ts'

export type JobId = string & { readonly brand: 'JobId' }

const VALID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** Random words are drawn many at a time: a call per id would cost more than the rest of it. */
const pool = new Uint32Array(1024)
let drawn = pool.length

function random32(): number {
  if (drawn === pool.length) {
    getRandomValues(pool)
    drawn = 0
  }
  return pool[drawn++] as number
}

let lastMs = 0
let counter = 0

const hex = (value: number, digits: number) => value.toString(16).padStart(digits, '0')

export function newJobId(): JobId {
  const now = Date.now()
  if (now > lastMs) {
    lastMs = now
    counter = random32() & 0x3fffffff
  } else if (++counter > 0x7fffffff) {
    lastMs++
    counter = random32() & 0x3fffffff
  }
  const ms = hex(lastMs, 12)
  // 12 bits of the counter after the version, 14 after the variant, 5 at the head of the last group.
  const high = hex(0x7000 | (counter >>> 19), 4)
  const middle = hex(0x8000 | ((counter >>> 5) & 0x3fff), 4)
  const low = hex(((counter & 0x1f) << 11) | (random32() & 0x7ff), 4) + hex(random32(), 8)
  return `${ms.slice(0, 8)}-${ms.slice(8)}-${high}-${middle}-${low}` as JobId
}

/** Accepts a job id from outside: any UUID, in either case. */
export function toJobId(text: string): JobId {
  const id = typeof text === 'string' ? text.toLowerCase() : ''
  if (!VALID.test(id)) {
    throw new LongshoreError('JOB_INVALID', `a job id is a UUID; got ${JSON.stringify(text)}`)
  }
  return id as JobId
}
