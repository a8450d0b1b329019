/** Owns the search for a Postgres that is installed on this machine. */
import { readdir, realpath } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { LongshoreError } from '../../job/errors.ts'
import { findOnPath } from '../find-on-path.ts'
import type { Guardian } from '../guardian.ts'
import type { Environment } from '../store.ts'
import { OLDEST_MAJOR, type PostgresBinaries, tryBinaries } from './binaries.ts'

const DEBIAN_ROOT = '/usr/lib/postgresql'

/** @param why completes "Postgres from this machine is needed, because …" */
export async function findLocal(
  guardian: Guardian,
  env: Environment,
  why: string,
): Promise<PostgresBinaries> {
  const onPath = await Promise.all(
    (await findOnPath('postgres', env)).map(async file => dirname(await realpath(file))),
  )
  const refused: string[] = []
  for (const bin of new Set([...onPath, ...(await debianFolders())])) {
    try {
      return await tryBinaries(guardian, bin)
    } catch (error) {
      refused.push((error as Error).message)
    }
  }
  const found = refused.length > 0 ? refused.join('; ') : `none on PATH or in ${DEBIAN_ROOT}`
  throw new LongshoreError(
    'STORE_UNAVAILABLE',
    `Postgres of this machine is needed (${why}) but not to be had: ${found}. Install Postgres ${OLDEST_MAJOR} or newer, set DATABASE_URL, or set LONGSHORE_STORES=docker`,
  )
}

async function debianFolders(): Promise<string[]> {
  const versions = await readdir(DEBIAN_ROOT).catch(() => [])
  return versions.sort((a, b) => Number(b) - Number(a)).map(version => join(DEBIAN_ROOT, version, 'bin'))
}
