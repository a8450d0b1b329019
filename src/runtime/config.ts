/**
 * Owns which value of a setting holds, and whether it may: flags, or options of the API, before the environment before the
 * config file before the default. All problems are told at once, each with where the value came from.
 */
import { checkOptions } from '../job/check-options.ts'
import type { ErrorCode } from '../job/errors.ts'
import { cut, shown } from '../job/shown.ts'
import { type Problem, refuse, toProblems } from './problems.ts'
import {
  type BalanceStrategy,
  type Command,
  configSchema,
  entriesOf,
  type ScheduleMode,
  type Section,
  type Setting,
  type SettingsOf,
} from './settings.ts'

/** What a worker's loop goes by. */
export interface WorkerSettings {
  maxConcurrentTasks: number
  claimBatchSize: number
  pollIntervalMs: number
  memoryThreshold: number
  latencyThresholdMs?: number | undefined
}

export interface ScheduleSettings {
  /** `fanout`: a ready job is copied to every worker that may run it; `balanced`: to one. Default `'fanout'`. */
  scheduleMode: ScheduleMode
  /** To which one: that with the fewest jobs queued and running, one after another, or any. Default `'least-queue'`. */
  balanceStrategy: BalanceStrategy
  /** To how many workers fanout copies at most, by the strategy; 0: to all that may run it. Default 0. */
  fanoutWidth: number
}

export interface ConfigFile {
  readonly path: string
  readonly content: unknown
}

export interface Effective {
  readonly section: Section
  readonly key: string
  readonly setting: Setting
  /** Undefined: not given, or wrong. */
  readonly value: unknown
  /** Such as `environment REDIS_URL`. */
  readonly source: string
}

/** Those that every command has, and its own. */
type SettingsFor<C extends Command> = SettingsOf<'shared'> & SettingsOf<C>

export interface Config<C extends Command> {
  /** To be trusted once the problems have been refused. */
  readonly values: SettingsFor<C>
  readonly settings: readonly Effective[]
  readonly problems: readonly Problem[]
}

interface Given {
  readonly value: unknown
  readonly source: string
}

/** `maxConcurrentTasks` → `max-concurrent-tasks` */
export const toFlag = (key: string): string => key.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)

/** The settings that `isWanted` of a command, from every source that it has. */
export function readConfig<C extends Command>(from: {
  section?: C
  isWanted?: (key: string) => boolean
  /** As texts; by key, as commander has them. */
  flags: Readonly<Record<string, unknown>>
  file: ConfigFile | undefined
  env?: NodeJS.ProcessEnv
}): Config<C> {
  const { flags, file, env = process.env, isWanted = () => true } = from
  const problems = file ? checkFile(file) : []
  const find: Find = (section, key, setting) =>
    fromFlags(key, setting, flags) ?? fromEnv(setting, env) ?? (file && fromFile(section, key, file))
  const sections: Section[] = from.section ? ['shared', from.section] : ['shared']
  const settings = sections.flatMap(section =>
    entriesOf(section)
      .filter(([key]) => isWanted(key))
      .map(entry => resolve(section, entry, find, problems)),
  )
  return { values: toValues(settings), settings, problems }
}

/** Options of the API that a setting has another name for. */
const OPTION_NAMES: Readonly<Record<string, string>> = {
  databaseUrl: 'postgres',
  listenUrl: 'listen',
  redisUrl: 'redis',
}

/**
 * The settings among the options of `createWorker` or `createRelay`; what is not given comes from the environment. Not the schema:
 * the producer beside it would not follow.
 */
export function readOptions<C extends Command>(
  section: C,
  what: string,
  options: object,
  known: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): SettingsFor<C> {
  const problems: Problem[] = []
  try {
    checkOptions('CONFIG_INVALID', what, options, known)
  } catch (error) {
    problems.push(...toProblems(error))
  }
  const given = options as Record<string, unknown>
  const find: Find = (_, key, setting) => {
    const name = OPTION_NAMES[key] ?? key
    const value = given[name]
    if (value !== undefined && value !== null) return { value, source: `option ${name}` }
    return key === 'schema' ? undefined : fromEnv(setting, env)
  }
  const isRead = (key: string) => {
    if (key === 'logLevel') return given['logger'] === undefined
    const name = OPTION_NAMES[key] ?? key
    // Where a store is may also be said with an object, which the store itself checks; '' means none.
    const value = given[name] ?? undefined
    const isUrl = value === undefined || (typeof value === 'string' && value !== '')
    return known.includes(name) && (name === key || isUrl)
  }
  const settings = (['shared', section] as const).flatMap(section =>
    entriesOf(section)
      .filter(([key]) => isRead(key))
      .map(entry => resolve(section, entry, find, problems)),
  )
  refuse(problems)
  return toValues(settings)
}

type Find = (section: Section, key: string, setting: Setting) => (Given & { isChecked?: boolean }) | undefined

function resolve(
  section: Section,
  [key, setting]: [string, Setting],
  find: Find,
  problems: Problem[],
): Effective {
  const given = find(section, key, setting)
  if (!given) return { section, key, setting, value: setting.fallback, source: 'default' }
  const { source } = given
  const parsed = setting.type.schema.safeParse(given.value)
  if (parsed.success) return { section, key, setting, value: parsed.data, source }
  if (!given.isChecked) problems.push(toProblem(setting, given, parsed.error.issues[0]))
  return { section, key, setting, value: undefined, source }
}

const toValues = <C extends Command>(settings: readonly Effective[]): SettingsFor<C> =>
  Object.fromEntries(settings.map(({ key, value }) => [key, value])) as unknown as SettingsFor<C>

interface Issue {
  readonly message: string
  readonly params?: { readonly code?: unknown } | undefined
}

function toProblem({ type }: Setting, given: Given, issue: Issue | undefined): Problem {
  const message = type.rule ? `${type.rule}; got ${type.showWrong(given.value)}` : (issue?.message ?? '')
  const joint = /^(must|takes|is) /.test(message) ? ' ' : ': '
  const code = (issue?.params?.code ?? 'CONFIG_INVALID') as ErrorCode
  return { code, message: `${given.source}${joint}${message}` }
}

function fromFlags(
  key: string,
  { type, each }: Setting,
  flags: Readonly<Record<string, unknown>>,
): Given | undefined {
  const text = flags[key] as string | undefined
  const items = each ? (flags[each.flag] as string[] | undefined) : undefined
  if (each && items) {
    const all = [...(text === undefined ? [] : [text]), ...items.map(each.toText)].join(',')
    return { value: type.fromText(all), source: `flag --${each.flag}` }
  }
  return text === undefined ? undefined : { value: type.fromText(text), source: `flag --${toFlag(key)}` }
}

/** An empty one is not set: so compose files and shells leave a variable out. */
function fromEnv({ type, env: name }: Setting, env: NodeJS.ProcessEnv): Given | undefined {
  const text = env[name]
  return text ? { value: type.fromText(text), source: `environment ${name}` } : undefined
}

function fromFile(section: Section, key: string, file: ConfigFile): ReturnType<Find> {
  const path = section === 'shared' ? [key] : [section, key]
  const value = valueAt(file.content, path)
  return value === undefined ? undefined : { value, source: inFile(file, path), isChecked: true }
}

const inFile = (file: ConfigFile, path: readonly PropertyKey[]): string =>
  `config file ${file.path}${path.length > 0 ? `, key ${path.join('.')}` : ''}`

function valueAt(content: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (value, key) =>
      typeof value === 'object' && value !== null && Object.hasOwn(value, key)
        ? (value as Record<PropertyKey, unknown>)[key]
        : undefined,
    content,
  )
}

/** The file is checked whole, also what others read of it or what something else comes before. */
function checkFile(file: ConfigFile): Problem[] {
  const parsed = configSchema.safeParse(file.content)
  if (parsed.success) return []
  const problems = new Map<string, Problem>()
  for (const issue of parsed.error.issues) {
    if (issue.code === 'unrecognized_keys') {
      for (const given of issue.keys) {
        const key = cut(given)
        const source = inFile(file, [...issue.path, key])
        problems.set(source, {
          code: 'CONFIG_INVALID',
          message: `${source} is unknown${advise(issue.path, key)}`,
        })
      }
      continue
    }
    const [top, key] = issue.path
    const section = top === 'worker' || top === 'relay' ? top : 'shared'
    const name = section === 'shared' ? top : key
    const setting = entriesOf(section).find(([known]) => known === name)?.[1]
    const path = setting ? (section === 'shared' ? [top ?? ''] : [section, key ?? '']) : issue.path
    const given = { value: valueAt(file.content, path), source: inFile(file, path) }
    if (problems.has(given.source)) continue
    problems.set(
      given.source,
      setting
        ? toProblem(setting, given, issue as Issue)
        : {
            code: 'CONFIG_INVALID',
            message: `${given.source} must be an object of settings; got ${shown(given.value)}`,
          },
    )
  }
  return [...problems.values()]
}

/** Where an unknown key belongs, or which one may be meant. */
function advise(path: readonly PropertyKey[], key: string): string {
  const here: Section = path[0] === 'worker' || path[0] === 'relay' ? path[0] : 'shared'
  const elsewhere = (['shared', 'worker', 'relay'] as const).filter(
    section => section !== here && entriesOf(section).some(([known]) => known === key),
  )
  if (elsewhere.length > 0) {
    const places = elsewhere.map(section => (section === 'shared' ? 'at the top' : `in ${section}`))
    return `: it belongs ${places.join(' or ')}`
  }
  const known = [...entriesOf(here).map(([name]) => name), ...(here === 'shared' ? ['worker', 'relay'] : [])]
  const [nearest] = known
    .map(name => ({ name, steps: stepsBetween(key.toLowerCase(), name.toLowerCase()) }))
    .sort((a, b) => a.steps - b.steps)
  return nearest && nearest.steps <= Math.max(2, key.length / 3)
    ? `: did you mean ${nearest.name}?`
    : `; known are ${known.join(', ')}`
}

/** Letters to insert, delete or replace to get from one to the other (Levenshtein). */
function stepsBetween(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at)
  for (const [i, letter] of [...a].entries()) {
    const next = [i + 1]
    for (const [j, other] of [...b].entries()) {
      const replaced = (row[j] ?? 0) + (letter === other ? 0 : 1)
      next.push(Math.min(replaced, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1))
    }
    row = next
  }
  return row[b.length] ?? 0
}

/** To how many workers a job is copied (0: all), and which. */
export function toSpread(settings: ScheduleSettings): {
  width: number
  strategy: ScheduleSettings['balanceStrategy']
} {
  return {
    width: settings.scheduleMode === 'balanced' ? 1 : settings.fanoutWidth,
    strategy: settings.balanceStrategy,
  }
}
