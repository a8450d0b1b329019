/** Owns a Redis or Valkey server of our own: folders, configuration, readiness. */
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { LongshoreError } from '../../job/errors.ts'
import { type Certificate, makeCertificate } from '../certificate.ts'
import type { GuardedProcess } from '../guarded-process.ts'
import type { Guardian } from '../guardian.ts'
import { failedStart, ownedStore, startOwnedServer } from '../owned-server.ts'
import {
  giveToServer,
  reachOf,
  refuseForeignContent,
  serverUser,
  takeOver,
  temporaryBase,
} from '../server-user.ts'
import type { Store } from '../store.ts'
import type { RedisOptions } from './options.ts'
import type { NativeRedis } from './program.ts'

interface NativePlan {
  readonly program: NativeRedis
  readonly choice: string
  readonly options: RedisOptions
  readonly onStopped: () => Promise<void>
}

const START_LIMIT_MS = 60_000

export async function runNative(guardian: Guardian, plan: NativePlan): Promise<Store> {
  const { program, options } = plan
  const folder = await guardian.makeFolder(await temporaryBase())
  const dataDir = await prepareDataFolder(options.dataDir ? resolve(options.dataDir) : join(folder, 'data'))
  const { cwd, path } = await reachOf(dataDir)
  const certificate = options.tls ? await makeCertificate(guardian, folder) : undefined
  const aclFile = options.users && join(folder, 'users.acl')
  if (aclFile) await writeForServer(aclFile, `${options.users?.join('\n')}\n`)

  // Only the first start waits for the copy: later the primary may be down, which is what failovers are about.
  let isToSync = options.replicaOf !== undefined
  const server = await startOwnedServer({
    name: `${program.product} ${program.version}`,
    port: options.port,
    stopSignal: 'SIGTERM',
    async launch(port) {
      const configFile = join(folder, 'redis.conf')
      await writeForServer(configFile, configuration({ port, dataDir: path, certificate, aclFile, options }))
      const running = await launch(guardian, program, { configFile, cwd, port, isToSync })
      isToSync = false
      return running
    },
    onStopped: plan.onStopped,
  })
  return ownedStore(server, {
    url: `${certificate ? 'rediss' : 'redis'}://127.0.0.1:${server.port}`,
    version: program.version,
    choice: plan.choice,
    dataDir,
    ca: certificate?.ca,
  })
}

async function prepareDataFolder(dataDir: string): Promise<string> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  await refuseForeignContent(dataDir, /^(appendonlydir|lost\+found|.*\.(rdb|aof|conf))$/)
  await takeOver(dataDir)
  return dataDir
}

async function writeForServer(file: string, text: string): Promise<void> {
  await writeFile(file, text)
  await chmod(file, 0o600)
  await giveToServer(file)
}

interface Configuration {
  readonly port: number
  readonly dataDir: string
  readonly certificate: Certificate | undefined
  readonly aclFile: string | undefined
  readonly options: RedisOptions
}

function configuration({ port, dataDir, certificate, aclFile, options }: Configuration): string {
  const { replicaOf } = options
  return [
    'bind 127.0.0.1',
    'daemonize no',
    // A primary that is stopped would wait 10 s for replicas that lag.
    'shutdown-timeout 1',
    // Or it waits 5 s for more replicas before it feeds the first.
    'repl-diskless-sync-delay 0',
    `dir "${dataDir}"`,
    // Only a folder that is kept is worth writing to; what was answered then survives a SIGKILL of the server.
    ...(options.dataDir ? ['appendonly yes', 'appendfsync everysec'] : ['appendonly no', 'save ""']),
    ...(certificate ? [`port 0`, `tls-port ${port}`, ...tls(certificate)] : [`port ${port}`]),
    ...(aclFile ? [`aclfile "${aclFile}"`] : []),
    ...(replicaOf ? replication(replicaOf, certificate !== undefined) : []),
    ...(options.settings ?? []),
    '',
  ].join('\n')
}

function tls({ certFile, keyFile }: Certificate): string[] {
  return [
    `tls-cert-file "${certFile}"`,
    `tls-key-file "${keyFile}"`,
    `tls-ca-cert-file "${certFile}"`,
    'tls-auth-clients no',
  ]
}

function replication(primary: Store, hasTls: boolean): string[] {
  const { hostname, port, protocol } = new URL(primary.url)
  if (protocol === 'rediss:' || hasTls) {
    throw new LongshoreError(
      'STORE_UNSUPPORTED',
      'a replica of a Redis with TLS is not supported: leave out { tls: true }',
    )
  }
  return [`replicaof ${hostname} ${port}`]
}

/** The log is ours: a port can be answered by someone else's server, but this line only by the one we started. */
async function launch(
  guardian: Guardian,
  program: NativeRedis,
  { configFile, cwd, port, isToSync }: { configFile: string; cwd: string; port: number; isToSync: boolean },
): Promise<GuardedProcess> {
  const server = await guardian.serve({
    command: program.command,
    args: [configFile, '--logfile', '', '--loglevel', 'notice'],
    env: program.env,
    user: serverUser,
    cwd,
    readyLine: isToSync
      ? '(MASTER|PRIMARY) <-> REPLICA sync: (Finished with success|(Master|Primary) accepted a Partial)'
      : 'Ready to accept connections',
    endSignal: 'SIGTERM',
  })
  await server.untilReady(START_LIMIT_MS)
  if (server.exit) throw failedStart(`${program.product} ${program.version}`, port, server.exit)
  return server
}
