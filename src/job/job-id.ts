/**
 * Owns job ids: UUIDv7, made by the client, ascending within a process. 48 bits of milliseconds, a 31-bit counter that
 * starts at random in each millisecond, and 43 random bits; the clock going back only stops the milliseconds.
 */
import { getRandomValues } from 'node:crypto'
import { type ErrorCode, LongshoreError } from './errors.ts'

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

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))
const hex16 = (value: number) => `${HEX[value >>> 8]}${HEX[value & 0xff]}`

let lastMs = 0
let counter = 0
let prefix = '' // of the milliseconds: most ids share it with the one before

function startMillisecond(ms: number): void {
  lastMs = ms
  counter = random32() & 0x3fffffff
  const text = ms.toString(16).padStart(12, '0')
  prefix = `${text.slice(0, 8)}-${text.slice(8)}-`
}

export function newJobId(): JobId {
  const now = Date.now()
  if (now > lastMs) startMillisecond(now)
  else if (++counter > 0x7fffffff) startMillisecond(lastMs + 1)
  // 12 bits of the counter after the version, 14 after the variant, 5 at the head of the last group.
  const high = hex16(0x7000 | (counter >>> 19))
  const middle = hex16(0x8000 | ((counter >>> 5) & 0x3fff))
  const random = random32()
  const low =
    hex16(((counter & 0x1f) << 11) | (random32() & 0x7ff)) + hex16(random >>> 16) + hex16(random & 0xffff)
  return `${prefix}${high}-${middle}-${low}` as JobId
}

/** Accepts a job id from outside: any UUID, in either case. */
export const toJobId = (text: string): JobId => toId(text, 'job', 'JOB_INVALID') as JobId

export const toGroupId = (text: string): string => toId(text, 'group', 'GROUP_INVALID')

function toId(text: string, what: string, code: ErrorCode): string {
  const id = typeof text === 'string' ? text.toLowerCase() : ''
  if (VALID.test(id)) return id
  throw new LongshoreError(code, `a ${what} id is a UUID; got ${JSON.stringify(text)}`)
}
