/** Owns what a usable Postgres installation is: `postgres` and `initdb` that the server's user can run, 14 or newer. */
import { join } from 'node:path'
import { LongshoreError } from '../../job/errors.ts'
import type { Guardian } from '../guardian.ts'
import { serverUser } from '../server-user.ts'

export interface PostgresBinaries {
  readonly bin: string
  /** `18.4` */
  readonly version: string
  readonly major: number
}

export const OLDEST_MAJOR = 14

// Messages are read here and there, so they must not be translated; UTC keeps timestamps the same everywhere.
export const POSTGRES_ENV = { LC_ALL: 'C', TZ: 'UTC', PATH: '/usr/local/bin:/usr/bin:/bin' }

/** Runs both programs as the server's user, which also finds missing libraries and folders it cannot enter. */
export async function tryBinaries(guardian: Guardian, bin: string): Promise<PostgresBinaries> {
  const outputs: string[] = []
  for (const name of ['postgres', 'initdb']) {
    const command = join(bin, name)
    const exit = await guardian.run(
      { command, args: ['--version'], env: POSTGRES_ENV, user: serverUser },
      10_000,
    )
    if (exit.code !== 0)
      throw new LongshoreError('STORE_UNAVAILABLE', `${command} cannot be run: ${exit.output.trim()}`)
    outputs.push(exit.output)
  }
  const version = /\(PostgreSQL\) (\d+(?:\.\d+)?)/.exec(outputs[0] ?? '')?.[1]
  if (!version)
    throw new LongshoreError('STORE_UNSUPPORTED', `${bin} has no Postgres of known version: ${outputs[0]}`)
  const major = Number.parseInt(version, 10)
  if (major < OLDEST_MAJOR) {
    throw new LongshoreError(
      'STORE_UNSUPPORTED',
      `Postgres ${version} in ${bin} is too old: longshore needs ${OLDEST_MAJOR} or newer`,
    )
  }
  return { bin, version, major }
}
