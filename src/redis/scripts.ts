/**
 * Owns the scripts under `lua/`: one atomic step each. The header of a file names its arguments, so that callers pass names,
 * not positions, and says of which kind they are: what is not is refused here, since a script that fails half-way is not
 * rolled back. `lua/shared/queue.lua` stands in front of each, and what `@use` names.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { LongshoreError } from '../job/errors.ts'
import { quoted } from '../job/shown.ts'
import { ownFile } from '../runtime/own-files.ts'

export interface Script {
  readonly name: string
  /** Names of the arguments, in order; items follow them. */
  readonly args: readonly string[]
  readonly kinds: readonly Kind[]
  /** What each item is made of. */
  readonly parts: readonly (Kind & { readonly name: string })[]
  readonly text: string
  readonly sha: string
}

/** What runs a script: a connection to Redis, or a cluster of them. */
export interface ScriptRunner {
  evalsha(sha: string, keys: number, ...args: string[]): Promise<unknown>
  /** On every node. A relay may; others run what it has loaded, see ADR 25. */
  load?(texts: readonly string[]): Promise<void>
}

interface Kind {
  readonly kind: string
  readonly fits: RegExp
  readonly isNumber: boolean
}

/** Lua's numbers hold integers of up to 2^53: what is beyond could not be told from its neighbours, nor be exceeded. */
const isExact = (digits: string) => digits.length < 16 || digits <= LARGEST
const LARGEST = String(Number.MAX_SAFE_INTEGER)

const KINDS: Readonly<Record<string, RegExp>> = {
  int: /^\d{1,16}$/,
  'int?': /^\d{0,16}$/,
  place: /^(-1|\d{1,16})$/, // -1: before all of them
  counts: /^(\d{1,10},-?\d{1,9}(,\d{1,10},-?\d{1,9})*)?$/, // number, count, number, count, …
  text: /^./s,
  any: /^/,
}

function kindOf(script: string, name: string, kind: string | undefined): Kind {
  const fits = kind?.includes('|') ? new RegExp(`^(${kind})$`) : KINDS[kind ?? '']
  if (kind !== undefined && fits) return { kind, fits, isNumber: /^(int|place)/.test(kind) }
  throw new Error(`lua/${script}.lua must say of which kind ${name} is, such as {int}`)
}

const read = (file: string) => readFileSync(ownFile(`lua/${file}`), 'utf8')

export function parseScript(name: string, source: string, shared: (part: string) => string): Script {
  const [shebang = '', ...lines] = source.split('\n')
  if (!shebang.startsWith('#!lua')) throw new Error(`lua/${name}.lua must begin with #!lua`)
  const after = (tag: string) =>
    lines.flatMap(line => new RegExp(`^--- @${tag}\\s+(.+)`).exec(line)?.[1] ?? [])
  const typed = (text: string) =>
    [...text.matchAll(/(\w+)\s+\{([^}]*)\}/g)].map(([, of = '', kind]) => ({
      name: of,
      ...kindOf(name, of, kind),
    }))
  const kinds = after('arg').map(text => typed(text)[0] ?? kindOf(name, text, undefined))
  const args = after('arg').map(text => /^\w+/.exec(text)?.[0] ?? '')
  const parts = after('items').flatMap(typed)
  const uses = after('use').flatMap(names => names.split(/\s+/))
  const named = args.map((arg, n) => `${arg} = ARGV[${n + 1}]`).join(', ')
  const text = [
    shebang,
    `local arg, items = { ${named} }, ${args.length + 1}`,
    ...['queue', ...uses].map(part => shared(part)),
    ...lines,
  ].join('\n')
  return { name, args, kinds, parts, text, sha: digest(text) }
}

const digest = (text: string) => createHash('sha1').update(text).digest('hex')

/**
 * One release: each script ends with the digest of all of them, so no two versions share some of their scripts, and a server that
 * has one of them has been given all.
 */
function readScripts(): ReadonlyMap<string, Script> {
  const scripts = readdirSync(ownFile('lua/'))
    .filter(file => file.endsWith('.lua'))
    .map(file => {
      const name = file.slice(0, -'.lua'.length)
      return parseScript(name, read(file), part => read(`shared/${part}.lua`))
    })
  const release = digest(scripts.map(({ sha }) => sha).join())
  return new Map(
    scripts.map(script => {
      const text = `${script.text}\n-- ${release}\n`
      return [script.name, { ...script, text, sha: digest(text) }]
    }),
  )
}

let cached: ReadonlyMap<string, Script> | undefined
let texts: readonly string[] | undefined

export function allScripts(): ReadonlyMap<string, Script> {
  cached ??= readScripts()
  return cached
}

/** What a relay loads. The beat last: it is called all the time, and where it is known the others have come before it. */
export function allTexts(): readonly string[] {
  texts ??= [...allScripts().values()]
    .sort((a, b) => Number(a.name === 'beat') - Number(b.name === 'beat'))
    .map(({ text }) => text)
  return texts
}

export function scriptNamed(name: string): Script {
  const script = allScripts().get(name)
  if (!script) throw new Error(`there is no lua/${name}.lua`)
  return script
}

/** Asked of every part of every item, so it is short. */
function fitting(script: Script, name: string, { kind, fits, isNumber }: Kind, value: unknown): string {
  if (typeof value === 'string' && fits.test(value) && (isNumber ? isExact(value) : value.isWellFormed()))
    return value
  throw new Error(`lua/${script.name}.lua: ${name} must be {${kind}}; got ${quoted(value)}`)
}

/** Run a script on one queue. Where the server does not know it, all of them are loaded by a runner that may. */
export async function runScript(
  runner: ScriptRunner,
  script: Script,
  root: string,
  args: Readonly<Record<string, string | number>>,
  items: readonly string[] = [],
): Promise<unknown[]> {
  const values = script.args.map((name, n) => {
    const value = args[name]
    if (value === undefined) throw new Error(`lua/${script.name}.lua needs ${name}`)
    return fitting(script, name, script.kinds[n] as Kind, String(value))
  })
  const { parts } = script
  if (items.length % Math.max(1, parts.length) !== 0)
    throw new Error(`lua/${script.name}.lua takes items of ${parts.length} parts; got ${items.length}`)
  for (let n = 0; n < items.length; n++) {
    const part = parts[n % parts.length]
    if (part) fitting(script, part.name, part, items[n])
  }
  const call = async () => (await runner.evalsha(script.sha, 1, root, ...values, ...items)) as unknown[]
  try {
    return await call()
  } catch (error) {
    if (!isUnknownScript(error)) throw namingRights(error)
    if (!runner.load) throw notLoaded(error)
    // One node of a cluster that cannot be reached does not matter to the others.
    const failure = await runner.load(allTexts()).catch((reason: unknown) => reason)
    return await call().catch(again => {
      throw namingRights(isUnknownScript(again) ? (failure ?? notLoaded(again)) : again)
    })
  }
}

const isUnknownScript = (error: unknown) => /NOSCRIPT/.test(String((error as Error)?.message))

/** Only a relay loads them. */
export const NO_SCRIPTS = 'Redis does not have the scripts of this version of longshore'

const notLoaded = (cause: unknown) =>
  new LongshoreError(
    'STORE_UNAVAILABLE',
    `${NO_SCRIPTS}. The relay that leads loads its own within a second, also after a restart of Redis. If this goes on, none leads, or one of another version: start or upgrade the relay`,
    { cause },
  )

/** A script runs with the rights of who calls it. What Redis refuses this user says where they are listed; anything else is as it was. */
export function namingRights(error: unknown): unknown {
  const message = String((error as Error)?.message)
  if (error instanceof LongshoreError || !/NOPERM|user executing the script|ACL failure/i.test(message))
    return error
  return new LongshoreError(
    'PERMISSION_DENIED',
    `Redis refuses it: ${message}. Give this user the rights that the guide lists for its kind of process, under "Users in Redis"`,
    { cause: error },
  )
}
