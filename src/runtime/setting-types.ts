/** Owns the types of settings: what each allows, how it is read from a text (a flag, the environment) and shown again. */
import { z } from 'zod'
import { constraintTags } from '../job/constraints.ts'
import { type Duration, shownDuration, toMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import { cut, quoted, shown } from '../job/shown.ts'
import { checkLabel } from '../job/task.ts'

export interface SettingType<T> {
  readonly schema: z.ZodType<T>
  /** What the flag takes, in the help. */
  readonly takes: string
  /** The sentence that a wrong value gets, after where it came from; without it the schema's own message. */
  readonly rule?: string
  /** What the schema checks when the value was a text. A text that makes no sense is returned as it is. */
  fromText(text: string): unknown
  /** The value as a user would write it, without credentials. */
  show(value: T): string
  /** A wrong value in a message, without credentials. */
  showWrong(value: unknown): string
}

/** Any value, checked by a function that throws. */
function checkedBy<T>(check: (value: unknown) => T): z.ZodType<T> {
  return z.unknown().transform((value, context) => {
    try {
      return check(value)
    } catch (error) {
      if (!(error instanceof LongshoreError)) throw error
      context.addIssue({ code: 'custom', message: error.message, params: { code: error.code } })
      return z.NEVER
    }
  })
}

const asItIs = (text: string): string => text

const toNumber = (text: string): unknown =>
  text.trim() === '' || Number.isNaN(Number(text)) ? text : Number(text)

export function whole(least: number, most: number): SettingType<number> {
  return {
    schema: z.int().min(least).max(most),
    takes: '<n>',
    rule: `must be a whole number from ${least} to ${most}`,
    fromText: toNumber,
    show: String,
    showWrong: shown,
  }
}

/** A part of a whole. */
export const share: SettingType<number> = {
  schema: z.number().gt(0).max(1),
  takes: '<share>',
  rule: 'must be a number above 0, at most 1',
  fromText: toNumber,
  show: String,
  showWrong: shown,
}

/** In milliseconds, however it was written. */
export function duration(least: Duration, most: Duration): SettingType<number> {
  const [leastMs, mostMs] = [toMs(least, 'least'), toMs(most, 'most')]
  return {
    schema: checkedBy(value => {
      const ms = toMs(value as Duration, 'duration')
      if (ms >= leastMs && ms <= mostMs) return ms
      throw new LongshoreError('CONFIG_INVALID', 'out of bounds')
    }),
    takes: '<duration>',
    rule: `must be a duration from ${least} to ${most}, in milliseconds or with a unit (500ms, 30s, 5m, 2h, 1d)`,
    fromText: text => (/^\d+$/.test(text) ? Number(text) : text),
    show: shownDuration,
    showWrong: shown,
  }
}

export function oneOf<const T extends string>(choices: readonly T[], takes: string): SettingType<T> {
  return {
    schema: z.enum(choices) as unknown as z.ZodType<T>,
    takes,
    rule: `must be one of ${choices.join(', ')}`,
    fromText: asItIs,
    show: String,
    showWrong: shown,
  }
}

export function text(pattern: RegExp, takes: string, rule: string): SettingType<string> {
  return {
    schema: z.string().regex(pattern),
    takes,
    rule,
    fromText: asItIs,
    show: String,
    showWrong: quoted,
  }
}

/** One URL, or several separated by commas or in a list. */
export function urls(...schemes: string[]): SettingType<string> {
  const isUrl = (url: string) => schemes.some(scheme => url.trim().startsWith(`${scheme}://`))
  return {
    schema: z
      .union([z.string(), z.array(z.string()).min(1)])
      .transform(given => (typeof given === 'string' ? given : given.join(',')))
      .refine(given => given.split(/,(?=\s*\w+:\/\/)/).every(isUrl)),
    takes: '<url>',
    rule: `must start with ${schemes.map(scheme => `${scheme}://`).join(' or ')}`,
    fromText: asItIs,
    show: withoutCredentials,
    // A wrong one may hold anything, and a password anywhere.
    showWrong: value =>
      typeof value === 'string'
        ? (/^\w+:\/\//.exec(value)?.[0].concat('…') ?? 'a text without that')
        : typeof value,
  }
}

/** Whatever stands before an @, and parameters that are secret by their name. */
function withoutCredentials(text: string): string {
  return text
    .split(/,(?=\s*\w+:\/\/)/)
    .map(url =>
      url.replace(/:\/\/.*@/s, '://***@').replace(/([?&][^=&]*(?:pass|secret|token)[^=&]*=)[^&]*/gi, '$1***'),
    )
    .join(',')
}

export const label = (longest: number): SettingType<string> => ({
  schema: checkedBy(value => checkLabel('it', value, longest, 'CONFIG_INVALID')),
  takes: '<name>',
  rule: `must be a text of 1 to ${longest} characters without control characters`,
  fromText: asItIs,
  show: String,
  showWrong: quoted,
})

/** Labels, each once. */
export function labels(what: string, most: number): SettingType<string[]> {
  return {
    schema: checkedBy(value => {
      if (!Array.isArray(value) || value.length < 1 || value.length > most) {
        const got = Array.isArray(value) ? `${value.length} items` : shown(value)
        throw new LongshoreError('CONFIG_INVALID', `must be a list of 1 to ${most} items; got ${got}`)
      }
      return [...new Set(value.map(item => checkLabel(what, item, undefined, 'CONFIG_INVALID')))]
    }),
    takes: '<list>',
    fromText: text => text.split(',').map(item => item.trim()),
    show: value => value.join(','),
    showWrong: shown,
  }
}

/** `gpu=a100,mem=high`; in values , = % are written %2C %3D %25. */
export const properties: SettingType<Record<string, string>> = {
  schema: checkedBy(value => {
    if (typeof value === 'string') {
      throw new LongshoreError(
        'CONFIG_INVALID',
        `takes pairs like gpu=a100,mem=high, each key once, with , = % in values as %2C %3D %25; got ${cut(value)}`,
      )
    }
    constraintTags(value as Record<string, string>) // throws
    return { ...(value as Record<string, string>) }
  }),
  takes: '<pairs>',
  fromText(text) {
    const found = new Map<string, string>()
    for (const item of text.split(',')) {
      const [, key = '', written = ''] = /^([^=]+)=([^=]+)$/.exec(item.trim()) ?? []
      const value = decode(written)
      if (!value || found.has(key)) return text
      found.set(key, value)
    }
    return Object.fromEntries(found)
  },
  show: value =>
    Object.entries(value)
      .map(([key, text]) => `${key}=${text.replace(/[,=%]/g, encodeURIComponent)}`)
      .join(','),
  showWrong: shown,
}

/** `gpu=a,100` as a pair among others. */
export function pairToText(pair: string): string {
  const at = pair.indexOf('=')
  return at < 0 ? pair : `${pair.slice(0, at)}=${encodeURIComponent(pair.slice(at + 1))}`
}

function decode(value: string): string | undefined {
  try {
    return decodeURIComponent(value)
  } catch {
    return undefined // a lone %
  }
}
