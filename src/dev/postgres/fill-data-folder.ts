/**
 * Owns the first content of a data folder: a new database, or a copy of a primary. It is made in a folder inside and
 * moved up at the end, `PG_VERSION` last, so that a process killed halfway never leaves what looks like a database.
 */
import { chmod, mkdir, readdir, readFile, rename, rm, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { LongshoreError } from '../../job/errors.ts'
import type { Guardian } from '../guardian.ts'
import { giveToServer, reachOf, refuseForeignContent, serverUser, takeOver } from '../server-user.ts'
import { POSTGRES_ENV, type PostgresBinaries } from './binaries.ts'

const WORKSHOP = 'longshore-partial'

/** Makes the folder usable by the server; true if it has to be filled. A folder with other content is not touched. */
export async function prepareDataFolder(dataDir: string, major: number): Promise<boolean> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  const made = (await readFile(join(dataDir, 'PG_VERSION'), 'utf8').catch(() => '')).trim()
  if (made && made !== String(major)) {
    throw new LongshoreError(
      'STORE_UNSUPPORTED',
      `the data folder ${dataDir} was made by Postgres ${made}, this is Postgres ${major}: choose another folder or delete it`,
    )
  }
  if (!made) await refuseForeignContent(dataDir, new RegExp(`^(${WORKSHOP}|lost\\+found)$`))
  await takeOver(dataDir)
  await chmod(dataDir, 0o700)
  await rm(join(dataDir, WORKSHOP), { recursive: true, force: true })
  return !made
}

export async function fillDataFolder(
  dataDir: string,
  fill: (folder: string) => Promise<void>,
): Promise<void> {
  const workshop = join(dataDir, WORKSHOP)
  await mkdir(workshop, { mode: 0o700 })
  await giveToServer(workshop)
  await fill(workshop)
  const entries = await readdir(workshop)
  const sorted = [...entries.filter(name => name !== 'PG_VERSION'), 'PG_VERSION']
  for (const name of sorted) await rename(join(workshop, name), join(dataDir, name))
  await rmdir(workshop)
}

export async function initialize(
  guardian: Guardian,
  binaries: PostgresBinaries,
  folder: string,
  isTemporary: boolean,
): Promise<void> {
  const { cwd, path } = await reachOf(folder)
  const exit = await guardian.run({
    command: join(binaries.bin, 'initdb'),
    // `--no-sync` concerns only these first files: a temporary folder does not outlive a power cut.
    args: [
      `--pgdata=${path}`,
      ...['--username=postgres', '--auth=trust', '--encoding=UTF8', '--no-locale', '--no-instructions'],
      ...(isTemporary ? ['--no-sync'] : []),
    ],
    env: POSTGRES_ENV,
    user: serverUser,
    cwd,
  })
  if (exit.code === 0) return
  throw new LongshoreError(
    'STORE_UNAVAILABLE',
    `initdb of Postgres ${binaries.version} failed (exit code ${exit.code}): ${exit.output.trim()}. Set DATABASE_URL to use another server`,
  )
}
