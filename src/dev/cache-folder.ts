/**
 * Owns the cache of unpacked servers. A folder appears in it whole, by a rename, so that processes that fill it at
 * the same time cannot see each other's halves; what is found there is tried before it is trusted.
 */
import { chmod, lstat, mkdir, rename, rm, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import type { Guardian } from './guardian.ts'
import { canEnter, temporaryBase } from './server-user.ts'
import type { Environment } from './store.ts'

interface CacheEntry<T> {
  readonly name: string
  /** Puts the content into a folder that does not exist yet. */
  fill(folder: string): Promise<void>
  /** Throws what is wrong with a filled folder. */
  trial(folder: string): Promise<T>
}

export async function cached<T>(guardian: Guardian, env: Environment, entry: CacheEntry<T>): Promise<T> {
  const root = await cacheRoot(guardian, env)
  const place = join(root, entry.name)
  if (await stat(place).catch(() => undefined)) {
    const found = await entry.trial(place).catch(() => undefined)
    if (found) return found
  }
  const workshop = await guardian.makeFolder(root)
  try {
    await entry.fill(join(workshop, 'content'))
    await entry.trial(join(workshop, 'content'))
    await putInPlace(workshop, place, entry)
  } finally {
    await rm(workshop, { recursive: true, force: true })
  }
  return entry.trial(place)
}

async function putInPlace(workshop: string, place: string, entry: CacheEntry<unknown>): Promise<void> {
  const content = join(workshop, 'content')
  const isPlaced = await rename(content, place).then(
    () => true,
    () => false,
  )
  if (isPlaced) return
  // Another process was faster, or something broken lies there.
  const isSound = await entry.trial(place).then(
    () => true,
    () => false,
  )
  if (isSound) return
  await rename(place, join(workshop, 'broken'))
  await rename(content, place)
}

/** `~/.cache/longshore`, or a folder of this user's below the temporary one if that cannot be used. */
export async function cacheRoot(guardian: Guardian, env: Environment): Promise<string> {
  const home = await usableHome(env)
  if (home) {
    const folder = join(home, 'longshore')
    if (await isMadeUsable(folder)) return folder
  }
  const base = await temporaryBase()
  const uid = process.getuid?.() ?? 0
  const shared = join(base, `longshore-cache-${uid}`)
  await mkdir(shared, { mode: 0o755 }).catch(() => {})
  const found = await lstat(shared).catch(() => undefined)
  // Anyone can make this name first in a shared folder and put programs in it; only our own is trusted.
  const isOurs = found?.isDirectory() && found.uid === uid && (found.mode & 0o022) === 0
  return isOurs && (await canEnter(shared)) ? shared : guardian.makeFolder(base)
}

async function isMadeUsable(folder: string): Promise<boolean> {
  try {
    await mkdir(folder, { recursive: true })
    await chmod(folder, 0o755)
    return await canEnter(folder)
  } catch {
    return false
  }
}

/** Not a home that belongs to someone else: `sudo` often leaves the caller's HOME in place. */
async function usableHome(env: Environment): Promise<string | undefined> {
  const xdg = env['XDG_CACHE_HOME']
  if (xdg && isAbsolute(xdg)) return xdg
  const home = env['HOME'] ?? homeFromPasswd()
  const found = await stat(home).catch(() => undefined)
  return found?.uid === process.getuid?.() ? join(home, '.cache') : undefined
}

function homeFromPasswd(): string {
  try {
    return homedir()
  } catch {
    return ''
  }
}
