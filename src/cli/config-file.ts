/** Owns where the config file is and how it is read. */
import { existsSync, readFileSync } from 'node:fs'
import { extname, resolve } from 'node:path'
import { LongshoreError } from '../job/errors.ts'
import type { ConfigFile } from '../runtime/config.ts'
import { loadModule } from './load-module.ts'

const NAMES = ['longshore.config.json', 'longshore.config.js', 'longshore.config.mjs']

/** The file that was named, by flag or by `LONGSHORE_CONFIG`, or the first of those in the working directory. */
export async function loadConfigFile(flag: string | undefined): Promise<ConfigFile | undefined> {
  const named = flag ?? (process.env['LONGSHORE_CONFIG'] || undefined)
  const found = named ?? NAMES.find(name => existsSync(name))
  if (found === undefined) return undefined
  const path = resolve(found)
  if (!existsSync(path)) {
    const source = flag === undefined ? 'environment LONGSHORE_CONFIG' : 'flag --config'
    throw new LongshoreError(
      'CONFIG_INVALID',
      `${source}: there is no config file ${path}: correct the path, or leave it out`,
    )
  }
  return { path, content: extname(path) === '.json' ? readJson(path) : await readModule(path) }
}

function readJson(path: string): unknown {
  let text = ''
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw new LongshoreError('CONFIG_INVALID', `config file ${path} cannot be read: ${error}`, {
      cause: error,
    })
  }
  try {
    return JSON.parse(text)
  } catch (error) {
    // The rest of the message quotes the file, which may hold a password.
    const at = /at position (\d+)/.exec(String(error))?.[1]
    const line = at === undefined ? '' : ` in line ${text.slice(0, Number(at)).split('\n').length}`
    throw new LongshoreError('CONFIG_INVALID', `config file ${path} is not valid JSON${line}`)
  }
}

async function readModule(path: string): Promise<unknown> {
  const loaded = (await loadModule(path, `config file ${path}`)) as { default?: unknown }
  if (loaded.default !== undefined) return loaded.default
  throw new LongshoreError(
    'CONFIG_INVALID',
    `config file ${path} must export the settings: export default { databaseUrl: … }`,
  )
}
