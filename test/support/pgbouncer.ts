/** A PgBouncer in transaction mode in front of a database: the machine's own, or Debian's, unpacked into the cache. */
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, inject } from 'vitest'
import { unpackPackage } from '../../src/dev/debian-package.ts'
import { findOnPath } from '../../src/dev/find-on-path.ts'
import { type Guardian, openGuardian } from '../../src/dev/guardian.ts'
import { failedStart, startOwnedServer } from '../../src/dev/owned-server.ts'
import { giveToServer, serverUser, temporaryBase } from '../../src/dev/server-user.ts'

export interface Pooler {
  readonly version: string
  /** The same URL, through the pooler. */
  through(url: string): string
}

interface Program {
  command: string
  env: Record<string, string>
  version: string
}

const BASE_ENV = { LC_ALL: 'C', PATH: '/usr/local/bin:/usr/bin:/bin' }
const START_LIMIT_MS = 20_000
const UNPACK_LIMIT_MS = 180_000

/** Call at the top of a file. Connections to Postgres at most: fewer than there are clients, so that they change hands. */
export function usePooler(serverConnections: number): Pooler {
  let guardian: Guardian | undefined
  let port = 0
  let version = ''
  let stop: (() => Promise<void>) | undefined

  beforeAll(async () => {
    const own = openGuardian()
    guardian = own
    const program = await findPgBouncer(own)
    version = program.version
    const folder = await own.makeFolder(await temporaryBase())
    const server = await startOwnedServer({
      name: `PgBouncer ${version}`,
      port: undefined,
      stopSignal: 'SIGINT',
      async launch(onPort) {
        const file = await configure(folder, onPort, serverConnections)
        const running = await own.serve({
          command: program.command,
          args: [file],
          env: program.env,
          user: serverUser,
          readyLine: 'process up',
          endSignal: 'SIGINT',
        })
        await running.untilReady(START_LIMIT_MS)
        if (running.exit) throw failedStart(`PgBouncer ${version}`, onPort, running.exit)
        return running
      },
      onStopped: () => own.end(),
    })
    port = server.port
    stop = server.stop
  }, UNPACK_LIMIT_MS)
  afterAll(() => (stop ? stop() : guardian?.end()))

  return {
    get version() {
      return version
    },
    through(url) {
      const there = new URL(url)
      there.host = `127.0.0.1:${port}`
      return there.href
    },
  }
}

/** Whoever cannot have it is told why: nothing is left out in silence. */
async function findPgBouncer(guardian: Guardian): Promise<Program> {
  const [local] = await findOnPath('pgbouncer', process.env)
  if (local) return tryProgram(guardian, local, [])
  const found = await unpackPackage(guardian, {
    env: process.env,
    progress: () => undefined,
    insist: true,
    package: 'pgbouncer',
    cacheName: 'pgbouncer-debian',
    trial: (place, libraries) => tryProgram(guardian, join(place, 'usr/sbin/pgbouncer'), libraries),
  })
  if ('missing' in found)
    throw new Error(`no PgBouncer to test with: ${found.missing}. Install it: apt-get install pgbouncer`)
  return found
}

async function tryProgram(guardian: Guardian, command: string, libraries: string[]): Promise<Program> {
  const env = libraries.length > 0 ? { ...BASE_ENV, LD_LIBRARY_PATH: libraries.join(':') } : BASE_ENV
  const exit = await guardian.run({ command, args: ['--version'], env, user: serverUser }, 10_000)
  const version = /^PgBouncer (\S+)/m.exec(exit.output)?.[1]
  if (exit.code !== 0 || !version) throw new Error(`${command} cannot be run: ${exit.output.trim()}`)
  return { command, env, version }
}

async function configure(folder: string, port: number, connections: number): Promise<string> {
  const postgres = new URL(inject('adminUrl'))
  const users = join(folder, 'users.txt')
  const file = join(folder, 'pgbouncer.ini')
  const names = ['producer', 'worker', 'relay', 'app'].map(kind => `${inject('roles')}_user_${kind}`)
  const all = [decodeURIComponent(postgres.username), ...(inject('roles') ? names : [])]
  await writeForServer(users, all.map(name => `"${name}" ""\n`).join(''))
  await writeForServer(
    file,
    `[databases]
* = host=${postgres.hostname} port=${postgres.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
pool_mode = transaction
default_pool_size = ${connections}
max_client_conn = 500
`,
  )
  return file
}

async function writeForServer(file: string, text: string): Promise<void> {
  await writeFile(file, text)
  await chmod(file, 0o600)
  await giveToServer(file)
}
