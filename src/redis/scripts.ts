/**
 * Owns the scripts under `lua/`: one atomic step each. The header of a file names its arguments, so that callers pass names,
 * not positions; `lua/shared/queue.lua` stands in front of each, and what `@use` names.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'

export interface Script {
  readonly name: string
  /** Names of the arguments, in order; items follow them. */
  readonly args: readonly string[]
  readonly text: string
  readonly sha: string
}

/** What runs a script: a connection to Redis, or a cluster of them. */
export interface ScriptRunner {
  evalsha(sha: string, keys: number, ...args: string[]): Promise<unknown>
  eval(text: string, keys: number, ...args: string[]): Promise<unknown>
}

const FOLDER = new URL('../../lua/', import.meta.url)
const read = (file: string) => readFileSync(new URL(file, FOLDER), 'utf8')

export function parseScript(name: string, source: string, shared: (part: string) => string): Script {
  const [shebang = '', ...lines] = source.split('\n')
  if (!shebang.startsWith('#!lua')) throw new Error(`lua/${name}.lua must begin with #!lua`)
  const after = (tag: string, wanted: string) =>
    lines.flatMap(line => new RegExp(`^--- @${tag}\\s+(${wanted})`).exec(line)?.[1] ?? [])
  const args = after('arg', '\\w+')
  const uses = after('use', '.+').flatMap(names => names.split(/\s+/))
  const named = args.map((arg, n) => `${arg} = ARGV[${n + 1}]`).join(', ')
  const text = [
    shebang,
    `local arg, items = { ${named} }, ${args.length + 1}`,
    ...['queue', ...uses].map(part => shared(part)),
    ...lines,
  ].join('\n')
  return { name, args, text, sha: createHash('sha1').update(text).digest('hex') }
}

let cached: ReadonlyMap<string, Script> | undefined

export function allScripts(): ReadonlyMap<string, Script> {
  cached ??= new Map(
    readdirSync(FOLDER)
      .filter(file => file.endsWith('.lua'))
      .map(file => {
        const name = file.slice(0, -'.lua'.length)
        return [name, parseScript(name, read(file), part => read(`shared/${part}.lua`))]
      }),
  )
  return cached
}

export function scriptNamed(name: string): Script {
  const script = allScripts().get(name)
  if (!script) throw new Error(`there is no lua/${name}.lua`)
  return script
}

/** Run a script on one queue. Loaded again by itself where the server has forgotten it. */
export async function runScript(
  runner: ScriptRunner,
  script: Script,
  root: string,
  args: Readonly<Record<string, string | number>>,
  items: readonly string[] = [],
): Promise<unknown[]> {
  const values = script.args.map(name => {
    const value = args[name]
    if (value === undefined) throw new Error(`lua/${script.name}.lua needs ${name}`)
    return String(value)
  })
  const call = [root, ...values, ...items]
  try {
    return (await runner.evalsha(script.sha, 1, ...call)) as unknown[]
  } catch (error) {
    if (!/NOSCRIPT/.test(String((error as Error)?.message))) throw error
    return (await runner.eval(script.text, 1, ...call)) as unknown[]
  }
}
