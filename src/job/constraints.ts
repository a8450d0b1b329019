/**
 * Owns constraints: what a job asks of a worker, what a worker has, and the one text that both become. A job may go to
 * a worker when its tag is among the worker's tags, so matching costs no more than comparing texts. Pure;
 * `constraint_tag.sql` is the same rule in the database.
 */

import { LongshoreError } from './errors.ts'
import { listed, quoted as shown } from './shown.ts'

/** Property keys that a deployment may declare, and so what a job may ask for: 3 keys make 8 tags of a worker. */
const MOST_KEYS = 3
const VALUE_LENGTH = 100
const TAG_LENGTH = 500
const KEY = /^[a-z][a-z0-9_]{0,39}$/
/** What would be mistaken for the form itself, and what is not printable ASCII. */
const ENCODED = /[,=%]|[^ -~]/gu

/** `c:` and the sorted `key=value` pairs, joined by commas: equal for equal constraints, and for no others. */
export function constraintTag(constraints: Readonly<Record<string, string>> | undefined): string {
  return toTag(toPairs('constraints', constraints))
}

/** Every tag that a job for this worker may have: the power set of its properties, `c:` first. */
export function constraintTags(properties: Readonly<Record<string, string>> | undefined): string[] {
  const pairs = toPairs('properties', properties)
  toTag(pairs) // the longest of them must fit
  let subsets: string[][] = [[]]
  for (const pair of pairs) subsets = [...subsets, ...subsets.map(subset => [...subset, pair])]
  return subsets.map(toTag)
}

/** The constraints that a stored tag says. */
export function parseConstraintTag(tag: string): Record<string, string> {
  const pairs = tag.slice('c:'.length).split(',').filter(Boolean)
  return Object.fromEntries(
    pairs.map(pair => {
      const at = pair.indexOf('=')
      return [pair.slice(0, at), decodeURIComponent(pair.slice(at + 1))]
    }),
  )
}

/** The keys that a deployment wants to declare, checked. */
export function checkPropertyKeys(keys: readonly string[]): string[] {
  if (!Array.isArray(keys)) throw invalid(`property keys must be a list like ['gpu']; got ${shown(keys)}`)
  for (const key of keys) checkKey('property keys', key)
  checkCount('property keys', keys)
  const repeated = keys.find((key, at) => keys.indexOf(key) !== at)
  if (repeated !== undefined) throw invalid(`property keys: ${repeated} is named twice`)
  return [...keys]
}

const toTag = (pairs: readonly string[]): string => {
  const tag = `c:${pairs.join(',')}`
  if (tag.length <= TAG_LENGTH) return tag
  throw invalid(
    `${shown(tag)} is ${tag.length} characters long when written as a tag, at most ${TAG_LENGTH} are possible: ` +
      'use shorter values, in ASCII where you can',
  )
}

function toPairs(what: string, given: Readonly<Record<string, string>> | undefined): string[] {
  if (given === undefined) return []
  if (typeof given !== 'object' || given === null || Array.isArray(given) || given instanceof Map) {
    throw invalid(`${what} must be an object like { gpu: 'a100' }; got ${shown(given)}`)
  }
  const entries = Object.entries(given)
  for (const [key, value] of entries) {
    checkKey(what, key)
    checkValue(`${what}.${key}`, value)
  }
  checkCount(
    what,
    entries.map(([key]) => key),
  )
  return entries
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => `${key}=${value.replace(ENCODED, encodeURIComponent)}`)
}

function checkKey(what: string, key: unknown): void {
  if (typeof key === 'string' && KEY.test(key)) return
  throw invalid(
    `${what}: ${shown(key)} is not a valid key: use at most 40 of a-z, 0-9 and _, starting with a letter`,
  )
}

function checkValue(what: string, value: unknown): void {
  if (typeof value !== 'string')
    throw invalid(`${what} must be a text; got ${shown(value)}: write it as a text`)
  // As many as Postgres counts: code points.
  const length = value.length <= VALUE_LENGTH ? value.length : [...value].length
  if (length < 1 || length > VALUE_LENGTH) {
    throw invalid(`${what} must have 1 to ${VALUE_LENGTH} characters; got ${length}: ${shown(value)}`)
  }
  if (!value.isWellFormed() || value.includes('\u0000')) {
    throw invalid(
      `${what} holds \\u0000 or half of a surrogate pair, which Postgres cannot store: ${shown(value)}`,
    )
  }
}

function checkCount(what: string, keys: readonly string[]): void {
  if (keys.length <= MOST_KEYS) return
  throw invalid(
    `${what}: ${listed(keys)} are ${keys.length} keys, at most ${MOST_KEYS} are possible: leave out ${keys.length - MOST_KEYS}`,
  )
}

const invalid = (message: string) => new LongshoreError('CONSTRAINT_INVALID', message)
