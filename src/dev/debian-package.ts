/**
 * Owns servers out of Debian's packages without installing them: a package, and the libraries this machine lacks, are fetched by
 * apt with the machine's own sources and unpacked into the cache. Needs no root. Takes about 3 s, once.
 */
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { LongshoreError } from '../job/errors.ts'
import { cached, cacheRoot } from './cache-folder.ts'
import { findOnPath } from './find-on-path.ts'
import type { Guardian } from './guardian.ts'
import { temporaryBase } from './server-user.ts'
import type { StoreOptions } from './store.ts'

const UPDATE_LIMIT_MS = 40_000
const DOWNLOAD_LIMIT_MS = 20_000
/** Without a network each start would wait for it again. */
const FAILURE_KEPT_MS = 10 * 60_000

interface Plan<Program> {
  readonly env: NonNullable<StoreOptions['env']>
  readonly progress: (line: string) => void
  /** Try even if it failed a moment ago. */
  readonly insist: boolean
  /** The name of Debian's package. */
  readonly package: string
  /** What the unpacked package is called in the cache. */
  readonly cacheName: string
  /** Throws what is wrong with what was unpacked to `place`; `libraries` are the folders with shared objects there. */
  readonly trial: (place: string, libraries: string[]) => Promise<Program>
}

export async function unpackPackage<Program>(
  guardian: Guardian,
  plan: Plan<Program>,
): Promise<Program | { missing: string }> {
  for (const tool of ['apt-get', 'dpkg']) {
    if ((await findOnPath(tool, plan.env)).length === 0) {
      return { missing: `Debian's package cannot be unpacked without ${tool}` }
    }
  }
  const note = join(await cacheRoot(guardian, plan.env), `${plan.cacheName}-failure.txt`)
  const failure = plan.insist ? undefined : await recentFailure(note)
  if (failure)
    return { missing: `${failure} (tried within the last 10 minutes; delete ${note} to try again)` }
  try {
    const found = await cached(guardian, plan.env, {
      name: `${plan.cacheName}-${process.arch}`,
      async fill(place) {
        plan.progress(`unpacking Debian's ${plan.package} into the cache (once, some seconds)`)
        await fetchAndUnpack(guardian, plan, place)
      },
      trial: async place => plan.trial(place, await libraryFolders(place)),
    })
    await rm(note, { force: true })
    return found
  } catch (error) {
    const missing = `Debian's package cannot be unpacked: ${(error as Error).message}`
    await writeFile(note, missing).catch(() => {})
    return { missing }
  }
}

async function recentFailure(note: string): Promise<string | undefined> {
  const written = await stat(note).catch(() => undefined)
  if (!written || Date.now() - written.mtimeMs > FAILURE_KEPT_MS) return undefined
  return readFile(note, 'utf8')
}

/** The network swallows packets: another try would take as long. */
class TookTooLong extends LongshoreError {}

/** First with the lists of packages this machine has, which is quick; if they are missing or stale, with new ones. */
async function fetchAndUnpack(
  guardian: Guardian,
  { env, package: name }: Pick<Plan<unknown>, 'env' | 'package'>,
  place: string,
): Promise<void> {
  // Apt fetches as a user of its own, who cannot enter a cache below a 0700 home.
  const folder = await guardian.makeFolder(await temporaryBase())
  const own = { state: join(folder, 'state'), archives: join(folder, 'cache/archives') }
  await mkdir(join(own.state, 'lists/partial'), { recursive: true })
  await mkdir(join(own.archives, 'partial'), { recursive: true })

  async function run(command: string, args: string[], limitMs: number): Promise<void> {
    const exit = await guardian.run(
      {
        command,
        args,
        env: { ...only(env, ['PATH', 'http_proxy', 'https_proxy', 'no_proxy']), LC_ALL: 'C', HOME: folder },
      },
      limitMs,
    )
    if (exit.code === 0) return
    if (exit.signal)
      throw new TookTooLong('STORE_UNAVAILABLE', `${command} took longer than ${limitMs / 1000} s`)
    throw new LongshoreError('STORE_UNAVAILABLE', /^E: (.*)/m.exec(exit.output)?.[1] ?? exit.output.trim())
  }

  const apt = (lists: string[], args: string[], limitMs: number) =>
    run('apt-get', ['-qq', ...options(join(folder, 'cache')), ...lists, ...args], limitMs)
  const install = ['--yes', '--no-install-recommends', '--download-only', 'install', name]
  const ownLists = ['-o', `Dir::State=${own.state}`, '-o', 'Dir::State::status=/var/lib/dpkg/status']
  try {
    await apt([], install, DOWNLOAD_LIMIT_MS)
  } catch (error) {
    if (error instanceof TookTooLong) throw error
    await apt(ownLists, ['update'], UPDATE_LIMIT_MS)
    await apt(ownLists, install, DOWNLOAD_LIMIT_MS).catch((again: Error) => {
      throw new LongshoreError(
        'STORE_UNAVAILABLE',
        `${(error as Error).message} (and with new lists: ${again.message})`,
      )
    })
  }

  const packages = (await readdir(own.archives)).filter(file => file.endsWith('.deb'))
  if (packages.length === 0) throw new LongshoreError('STORE_UNAVAILABLE', 'apt-get fetched no package')
  await mkdir(place)
  for (const file of packages) await run('dpkg', ['-x', join(own.archives, file), place], 10_000)
  await rm(folder, { recursive: true, force: true })
}

function options(cache: string): string[] {
  const settings = {
    'Dir::Cache': cache,
    // The locks of the machine's apt are root's, and nothing of the machine is changed.
    'Debug::NoLocking': 'true',
    'Acquire::Languages': 'none',
    'Acquire::Retries': '1',
    'Acquire::http::Timeout': '10',
    'Acquire::https::Timeout': '10',
  }
  return Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`])
}

async function libraryFolders(place: string): Promise<string[]> {
  const files = await readdir(place, { recursive: true })
  return [...new Set(files.filter(file => /\.so(\.|$)/.test(file)).map(file => join(place, dirname(file))))]
}

function only(env: Plan<unknown>['env'], names: string[]): Record<string, string> {
  return Object.fromEntries(names.flatMap(name => (env[name] === undefined ? [] : [[name, env[name]]])))
}
