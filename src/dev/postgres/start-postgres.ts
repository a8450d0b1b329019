/** Owns which Postgres is used: the one that is given, Docker's, the packaged one, the machine's own. */
import { LongshoreError } from '../../job/errors.ts'
import { openPool } from '../../postgres/connect.ts'
import { checkServerVersion } from '../../postgres/server-version.ts'
import { isDockerAskedFor, startContainer } from '../docker.ts'
import { type Guardian, openGuardian } from '../guardian.ts'
import { type Environment, foreignStore, type Store } from '../store.ts'
import type { PostgresBinaries } from './binaries.ts'
import { findLocal } from './find-local.ts'
import { findPackaged } from './find-packaged.ts'
import type { PostgresOptions } from './options.ts'
import { runPostgres } from './run-postgres.ts'

export async function startPostgres(options: PostgresOptions = {}): Promise<Store> {
  const env = options.env ?? process.env
  if (!needsOwn(options)) {
    const url = env['DATABASE_URL']
    if (url) return useGiven(url)
    if (isDockerAskedFor(env)) return startInDocker(env)
  }
  const guardian = openGuardian()
  try {
    const { binaries, reason } = await choose(guardian, env)
    return await runPostgres(guardian, binaries, `Postgres ${binaries.version} (${reason})`, options)
  } catch (error) {
    await guardian.end()
    throw error
  }
}

function needsOwn({ own, dataDir, port, tls, settings, replicaOf }: PostgresOptions): boolean {
  return own ?? [dataDir, port, tls || undefined, settings, replicaOf].some(option => option !== undefined)
}

async function useGiven(url: string): Promise<Store> {
  const pool = openPool(url, 1, () => {})
  try {
    await checkServerVersion(pool)
    const { rows } = await pool.query(
      "select split_part(current_setting('server_version'), ' ', 1) as version",
    )
    const version = String(rows[0]?.['version'])
    return foreignStore({ url, version, choice: `Postgres ${version} (DATABASE_URL)` })
  } catch (cause) {
    if (cause instanceof LongshoreError) throw cause
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      `the Postgres of DATABASE_URL cannot be used: ${(cause as Error).message}. Correct it, or unset DATABASE_URL to start one`,
      { cause },
    )
  } finally {
    await pool.end()
  }
}

function startInDocker(env: Environment): Promise<Store> {
  return startContainer(
    {
      image: 'postgres:18-alpine',
      port: 5432,
      env: { POSTGRES_HOST_AUTH_METHOD: 'trust' },
      readyLine: /database system is ready to accept connections/,
      readyTimes: 2,
      versionCommand: ['postgres', '--version'],
      url: (host, port) => `postgres://postgres@${host}:${port}/postgres`,
    },
    env,
  )
}

async function choose(
  guardian: Guardian,
  env: Environment,
): Promise<{ binaries: PostgresBinaries; reason: string }> {
  const asked = env['LONGSHORE_POSTGRES'] || undefined
  if (asked === 'local') {
    const binaries = await findLocal(guardian, env, 'LONGSHORE_POSTGRES=local')
    return { binaries, reason: `the machine's own in ${binaries.bin}, LONGSHORE_POSTGRES=local` }
  }
  if (asked !== undefined && asked !== 'packaged') {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `LONGSHORE_POSTGRES is "${asked}": choose "packaged" or "local", or unset it`,
    )
  }
  const packaged = await findPackaged(guardian, env)
  if ('binaries' in packaged) {
    const reason = "packaged, the default; LONGSHORE_POSTGRES=local uses the machine's own"
    return { binaries: packaged.binaries, reason }
  }
  if (asked === 'packaged') {
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      `LONGSHORE_POSTGRES=packaged, but ${packaged.missing}: run \`npm install\` with optional dependencies, or unset it`,
    )
  }
  const binaries = await findLocal(guardian, env, packaged.missing)
  return { binaries, reason: `the machine's own in ${binaries.bin}; ${packaged.missing}` }
}
