/**
 * Owns job ids: UUIDv7, made by the client, ascending within a process. 48 bits of milliseconds, a 31-bit counter that
 * starts at random in each millisecond, and 43 random bits; the clock going back only stops the milliseconds.
 */
import { getRandomValues } from 'node:crypto'
import { type ErrorCode, LongshoreError } from './errors.ts'
import { quoted } from './shown.ts'

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
export const toJobId = (text: string): JobId => toId(text, 'JOB_INVALID', A_JOB_ID, MAKE_ONE) as JobId

export const toGroupId = (text: string): string => toId(text, 'GROUP_INVALID', A_GROUP_ID, MAKE_ONE)

/** As this package and Postgres write it. */
export const isJobId = (text: string): text is JobId => VALID.test(text)

type Ref = string | { readonly id: string }
const A_JOB_ID = 'a job id is a UUID'
const A_GROUP_ID = 'a group id is a UUID'
const MAKE_ONE = ': make one with newJobId(), or derive one from a key of yours with UUIDv5'

/** The id of a job that is given by reference or id. `expected` says in the error what would have been right. */
export const jobIdOf = (ref: Ref, code: ErrorCode = 'JOB_INVALID', expected = A_JOB_ID): JobId =>
  toId(idIn(ref), code, expected, ': pass what `enqueue` returned, or its `id`') as JobId

export const groupIdOf = (ref: Ref): string =>
  toId(idIn(ref), 'GROUP_INVALID', A_GROUP_ID, ': pass the group, or its `id`')

const idIn = (ref: unknown): unknown => (hasProperty(ref, 'id') ? ref.id : ref)

function toId(value: unknown, code: ErrorCode, expected: string, advice: string): string {
  const id = typeof value === 'string' ? value.toLowerCase() : ''
  if (VALID.test(id)) return id
  throw new LongshoreError(code, `${expected}; got ${described(value) ?? `${quoted(value)}${advice}`}`)
}

/** What else it is, with what to do then. */
function described(value: unknown): string | undefined {
  if (Array.isArray(value)) return 'a list: give them one by one'
  if (hasProperty(value, 'then')) return 'a promise: wait for it first'
  return typeof value === 'object' && value !== null ? 'an object without an id' : undefined
}

const hasProperty = <K extends string>(value: unknown, key: K): value is Record<K, unknown> =>
  typeof value === 'object' && value !== null && key in value
