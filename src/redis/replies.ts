/**
 * Owns the check of what Redis answers: a script reads it from keys that others may have written. What does not fit never travels
 * on to Postgres; it means that the queue is to be built anew.
 */
import { isJobId, type JobId } from '../job/job-id.ts'
import { quoted } from '../job/shown.ts'

/** Redis holds something that no script of ours has written. */
export class BrokenIndexError extends Error {
  override name = 'BrokenIndexError'
}

/** Redis has answered, if only with an error; otherwise it is not known whether the call was done. */
export const isAnswer = (error: unknown): boolean =>
  error instanceof BrokenIndexError || nameOf(error) === 'ReplyError' || codeOf(error) === 'PERMISSION_DENIED'

const nameOf = (error: unknown) => (error as Error | undefined)?.name
const codeOf = (error: unknown) => (error as { code?: unknown } | undefined)?.code

/** A script says so itself when it fails on what it finds; what was refused before it ran says nothing about the content. */
const FAILED = /^(WRONGTYPE|ERR) (?!.*ACL failure).*user_script/s

/** What Redis holds of the queue makes no sense: only a new generation helps. */
export function isBroken(error: unknown): boolean {
  if (error instanceof BrokenIndexError) return true
  return nameOf(error) === 'ReplyError' && FAILED.test((error as Error).message)
}

/** Numbers of lanes, limits and workers are integers of Postgres. */
const MOST_NUMBER = 2_147_483_647
const INTEGER = /^\d{1,16}$/

export function broken(what: string, value: unknown): never {
  throw new BrokenIndexError(`Redis does not hold ${what}, but ${quoted(value)}`)
}

export function toInteger(value: unknown, most = Number.MAX_SAFE_INTEGER): number {
  const number = typeof value === 'number' ? value : INTEGER.test(String(value)) ? Number(value) : Number.NaN
  return Number.isInteger(number) && number >= 0 && number <= most ? number : broken('a whole number', value)
}

export const toNumber = (value: unknown): number => toInteger(value, MOST_NUMBER)

/** As it is written: places in the order, tokens, turns. */
export const toDigits = (value: unknown): string => {
  toInteger(value)
  return String(value)
}

export function toList<T>(value: unknown, item: (item: unknown) => T, length?: number): T[] {
  if (!Array.isArray(value) || (length !== undefined && value.length !== length))
    return broken('a list', value)
  return value.map(one => item(one))
}

export function toCode<Code extends string>(value: unknown, ...codes: readonly Code[]): Code {
  return codes.includes(value as Code) ? (value as Code) : broken('an answer', value)
}

export type IdCheck = (text: string) => boolean

/** `isId`: whether a text is the id of a job. */
export function toIds(isId: IdCheck = isJobId) {
  const toId = (value: unknown): JobId =>
    typeof value === 'string' && isId(value) ? (value as JobId) : broken('the id of a job', value)
  return {
    toId,
    /** A bound. Before every job: without an id. Nothing: null. */
    toBound(score: unknown, id: unknown): { score: string; id: string } | null {
      if (score === '') return null
      if (score === '-1' && id === '') return { score, id }
      return { score: toDigits(score), id: toId(id) }
    },
  }
}
