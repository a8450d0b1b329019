/** Owns a Postgres server of our own: folders, first content, configuration, readiness. */
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { LongshoreError } from '../../job/errors.ts'
import { makeCertificate } from '../certificate.ts'
import type { GuardedProcess } from '../guarded-process.ts'
import type { Guardian } from '../guardian.ts'
import { failedStart, type OwnedServer, ownedStore, startOwnedServer } from '../owned-server.ts'
import { reachOf, serverUser, temporaryBase } from '../server-user.ts'
import type { Store } from '../store.ts'
import { POSTGRES_ENV, type PostgresBinaries } from './binaries.ts'
import { clearStaleLock } from './clear-stale-lock.ts'
import { writeConfiguration } from './configuration.ts'
import { startFromCopy } from './copy-primary.ts'
import { fillDataFolder, initialize, prepareDataFolder } from './fill-data-folder.ts'
import type { PostgresOptions } from './options.ts'

const START_LIMIT_MS = 120_000
const MEMORY_LIMIT_MS = 10_000

export async function runPostgres(
  guardian: Guardian,
  binaries: PostgresBinaries,
  choice: string,
  options: PostgresOptions,
): Promise<Store> {
  const folder = await guardian.makeFolder(await temporaryBase())
  const dataDir = options.dataDir ? resolve(options.dataDir) : join(folder, 'data')
  const certificate = options.tls ? await makeCertificate(guardian, folder) : undefined
  const { replicaOf } = options
  const replicaName = `replica_${randomBytes(6).toString('hex')}`
  const isEmpty = await prepareDataFolder(dataDir, binaries.major)

  async function start(): Promise<OwnedServer> {
    const configFile = await writeConfiguration({
      folder,
      dataDir: (await reachOf(dataDir)).path,
      certificate,
      settings: {
        ...(replicaOf && { primary_conninfo: connectionInfo(replicaOf.url, replicaName) }),
        ...options.settings,
      },
    })
    return startOwnedServer({
      name: `Postgres ${binaries.version}`,
      port: options.port,
      // Fast shutdown: ends the sessions, writes a checkpoint.
      stopSignal: 'SIGINT',
      launch: port => launch(guardian, binaries, dataDir, configFile, port),
      onStopped: () => guardian.end(),
    })
  }

  async function fillAndStart(fill: (place: string) => Promise<void>): Promise<OwnedServer> {
    await fillDataFolder(dataDir, fill)
    return start()
  }

  const server = !isEmpty
    ? await start()
    : replicaOf
      ? await startFromCopy(replicaOf, replicaName, fillAndStart)
      : await fillAndStart(place => initialize(guardian, binaries, place, options.dataDir === undefined))

  const url = new URL(`postgres://postgres@127.0.0.1:${server.port}/postgres`)
  if (certificate) {
    url.searchParams.set('sslmode', 'verify-full')
    url.searchParams.set('sslrootcert', certificate.certFile)
  }
  return ownedStore(server, {
    url: url.href,
    version: binaries.version,
    choice,
    dataDir,
    ca: certificate?.ca,
  })
}

async function launch(
  guardian: Guardian,
  binaries: PostgresBinaries,
  dataDir: string,
  configFile: string,
  port: number,
): Promise<GuardedProcess> {
  const deadline = Date.now() + MEMORY_LIMIT_MS
  const { cwd, path } = await reachOf(dataDir)
  for (;;) {
    await clearStaleLock(dataDir)
    const server = await guardian.serve({
      command: join(binaries.bin, 'postgres'),
      args: ['-D', path, '-p', String(port), '-c', `config_file=${configFile}`],
      env: POSTGRES_ENV,
      user: serverUser,
      cwd,
      // Immediate shutdown; unlike SIGKILL it gives shared memory back.
      endSignal: 'SIGQUIT',
    })
    await untilAccepting(server, dataDir, binaries.version)
    if (!server.exit) return server
    // The last children of a killed server take a moment to go.
    const isOccupied = /pre-existing shared memory block/.test(server.exit.output)
    if (!isOccupied || Date.now() > deadline)
      throw failedStart(`Postgres ${binaries.version}`, port, server.exit)
    await delay(50)
  }
}

/** The lock file names the pid and the state (`ready`, `standby`) of the server that owns the folder; logs can be turned off. */
async function untilAccepting(server: GuardedProcess, dataDir: string, version: string): Promise<void> {
  const deadline = Date.now() + START_LIMIT_MS
  while (!server.exit) {
    const lines = (await readFile(join(dataDir, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')
    if (Number(lines[0]) === server.pid && /^(ready|standby)/.test(lines[7] ?? '')) return
    if (Date.now() > deadline) {
      server.signal('SIGKILL')
      throw new LongshoreError(
        'STORE_UNAVAILABLE',
        `Postgres ${version} on ${dataDir} accepts no connections after ${START_LIMIT_MS / 1000} s`,
      )
    }
    await delay(10)
  }
}

function connectionInfo(url: string, name: string): string {
  const { hostname, port, username } = new URL(url)
  return `host=${hostname} port=${port} user=${username} application_name=${name}`
}
