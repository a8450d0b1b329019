import { existsSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { type PostgresOptions, type Store, startPostgres } from '../../src/dev/index.ts'
import { freePort } from '../../src/dev/owned-server.ts'
import {
  bareEnv,
  hasLocalPostgres,
  hasOpenssl,
  isRoot,
  isRunning,
  query,
  testFolder,
  until,
  writeProgram,
} from './machine.ts'

vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 })

async function start(options: PostgresOptions = {}): Promise<Store> {
  const store = await startPostgres({ env: bareEnv(), ...options })
  onTestFinished(() => store.stop())
  return store
}

describe('the default Postgres', () => {
  let store: Store
  beforeAll(async () => {
    store = await startPostgres({ env: bareEnv() })
  })
  afterAll(() => store.stop())

  it('is the packaged one and says why', async () => {
    expect(store.choice).toMatch(/^Postgres 18\.\d+ \(packaged, the default; LONGSHORE_POSTGRES=local/)
    expect(store.pid && isRunning(store.pid)).toBe(true)
    const [row] = await query(store.url, "select current_setting('server_version') as version")
    expect(row).toEqual({ version: store.version })
  })

  it('keeps what it commits: fsync and synchronous_commit are on', async () => {
    const names = ['fsync', 'synchronous_commit', 'full_page_writes', 'max_connections', 'shared_buffers']
    const [row] = await query(
      store.url,
      `select ${names.map(name => `current_setting('${name}') as ${name}`)}`,
    )
    expect(Object.values(row ?? {})).toEqual(['on', 'on', 'on', '300', '128MB'])
  })

  it('listens on loopback only and depends on no locale', async () => {
    const [row] = await query(
      store.url,
      `select current_setting('listen_addresses') as listen, current_setting('unix_socket_directories') as sockets,
        current_setting('lc_messages') as messages, current_setting('server_encoding') as encoding,
        datcollate from pg_database where datname = 'postgres'`,
    )
    expect(row).toEqual({
      listen: '127.0.0.1',
      sockets: '',
      messages: 'C',
      encoding: 'UTF8',
      datcollate: 'C',
    })
  })

  it('is left alone and used as it is when DATABASE_URL names it', async () => {
    const given = await startPostgres({ env: bareEnv({ DATABASE_URL: store.url }) })
    expect(given).toMatchObject({ url: store.url, choice: `Postgres ${store.version} (DATABASE_URL)` })
    expect(given.pid).toBeUndefined()
    await given.stop()
    await expect(given.kill()).rejects.toMatchObject({ code: 'STORE_UNSUPPORTED' })
    expect(await query(store.url, 'select 1 as one')).toEqual([{ one: 1 }])
  })

  it('starts beside DATABASE_URL when a server of its own is asked for', async () => {
    const own = await start({ own: true, env: bareEnv({ DATABASE_URL: store.url }) })
    expect(own.url).not.toBe(store.url)
    expect(own.pid).toBeGreaterThan(0)
  })

  it('feeds a replica that streams', async () => {
    const replica = await start({ replicaOf: store })
    expect(await query(replica.url, 'select pg_is_in_recovery() as standby')).toEqual([{ standby: true }])
    await query(store.url, 'create table streamed as select 42 as n')
    await until(
      async () => (await query(replica.url, "select to_regclass('streamed') as t"))[0]?.['t'] !== null,
    )
    await replica.kill()
    await query(store.url, 'insert into streamed values (43)')
    await replica.restart()
    await until(async () => (await query(replica.url, 'select from streamed')).length === 2)
  })
})

it('stop() ends the server, removes its folder, and may be called again', async () => {
  const store = await start()
  const { pid, dataDir } = store
  await Promise.all([store.stop(), store.stop()])
  await store.stop()
  expect(store.pid).toBeUndefined()
  expect(isRunning(pid as number)).toBe(false)
  expect(existsSync(dirname(dataDir as string))).toBe(false)
  await expect(store.restart()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
})

it.skipIf(!hasLocalPostgres)(
  'LONGSHORE_POSTGRES=local uses the machine’s own, replica included (needs a Postgres on this machine)',
  async () => {
    const store = await start({ env: bareEnv({ LONGSHORE_POSTGRES: 'local' }) })
    expect(store.choice).toMatch(/the machine's own in .*, LONGSHORE_POSTGRES=local/)
    const replica = await start({ replicaOf: store, env: bareEnv({ LONGSHORE_POSTGRES: 'local' }) })
    expect(await query(replica.url, 'select pg_is_in_recovery() as standby')).toEqual([{ standby: true }])
  },
)

describe('a folder that is kept', () => {
  it('holds what was committed before kill -9, under a fixed port', async () => {
    const dataDir = join(await testFolder(), 'data')
    const port = await freePort()
    const first = await start({ dataDir, port })
    await query(first.url, 'create table kept as select 1 as n')
    await first.kill()
    expect(first.pid).toBeUndefined()
    await first.restart()
    await query(first.url, 'insert into kept values (2)')
    await first.kill()

    const second = await start({ dataDir, port })
    expect(second.url).toBe(first.url)
    expect(await query(second.url, 'select count(*)::int as n from kept')).toEqual([{ n: 2 }])
    await second.stop()
    expect(existsSync(join(dataDir, 'PG_VERSION'))).toBe(true)
  })

  it('starts although the pid in its stale lock belongs to another program now', async () => {
    const dataDir = join(await testFolder(), 'data')
    const store = await start({ dataDir })
    await store.kill()
    const lock = join(dataDir, 'postmaster.pid')
    await writeFile(lock, (await readFile(lock, 'utf8')).replace(/^\d+/, String(process.ppid)))
    await store.restart()
    expect(await query(store.url, 'select 1 as one')).toEqual([{ one: 1 }])
  })

  it('is refused to a second server while the first one runs', async () => {
    const dataDir = join(await testFolder(), 'data')
    const store = await start({ dataDir })
    await expect(startPostgres({ dataDir, env: bareEnv() })).rejects.toThrow(/already runs on/)
    expect(await query(store.url, 'select 1 as one')).toEqual([{ one: 1 }])
  })

  it('is filled again after an initdb that was cut off, and refused if it holds something else', async () => {
    const dataDir = await testFolder()
    await mkdir(join(dataDir, 'longshore-partial/base'), { recursive: true })
    const store = await start({ dataDir })
    await store.stop()
    const foreign = await testFolder()
    await writeFile(join(foreign, 'thesis.tex'), '')
    await expect(startPostgres({ dataDir: foreign, env: bareEnv() })).rejects.toThrow(
      /not empty .*thesis\.tex/,
    )
    await writeFile(join(foreign, 'PG_VERSION'), '9.6\n')
    await expect(startPostgres({ dataDir: foreign, env: bareEnv() })).rejects.toThrow(/made by Postgres 9\.6/)
  })

  it.skipIf(!isRoot)('is refused to root below a 0700 folder, saying so (needs root)', async () => {
    const folder = await testFolder()
    await mkdir(join(folder, 'home'), { mode: 0o700 })
    const dataDir = join(folder, 'home/data')
    await expect(startPostgres({ dataDir, env: bareEnv() })).rejects.toThrow(/cannot be entered by uid 65534/)
  })
})

it('settings of the caller come last', async () => {
  const store = await start({
    settings: { fsync: false, shared_buffers: '32MB', 'longshore.note': "it's \\ fine" },
  })
  const [row] = await query(
    store.url,
    `select current_setting('fsync') as fsync, current_setting('shared_buffers') as buffers,
      current_setting('longshore.note') as note`,
  )
  expect(row).toEqual({ fsync: 'off', buffers: '32MB', note: "it's \\ fine" })
})

it.skipIf(!hasOpenssl)(
  'TLS is verified by the client and plain connections are refused (needs openssl)',
  async () => {
    const store = await start({ tls: true })
    expect(await query(store.url, 'select ssl from pg_stat_ssl where pid = pg_backend_pid()')).toEqual([
      { ssl: true },
    ])
    const plain = new URL(store.url)
    plain.search = ''
    await expect(query(plain.href, 'select 1')).rejects.toThrow(/no encryption/)
  },
)

describe('errors that say what to do', () => {
  it('a fixed port in use', async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    onTestFinished(() => void taken.close())
    await new Promise(resolve => taken.once('listening', resolve))
    const { port } = taken.address() as { port: number }
    await expect(startPostgres({ port, env: bareEnv() })).rejects.toThrow(
      `port ${port} on 127.0.0.1 is in use`,
    )
  })

  it('a machine’s Postgres that is too old is passed over for a newer one, or named', async () => {
    const folder = await testFolder()
    for (const name of ['postgres', 'initdb'])
      await writeProgram(folder, name, 'echo "postgres (PostgreSQL) 13.4"')
    const env = bareEnv({ PATH: folder, LONGSHORE_POSTGRES: 'local' })
    const started = startPostgres({ env })
    if (hasLocalPostgres) {
      const store = await started
      expect(Number.parseInt(store.version, 10)).toBeGreaterThanOrEqual(14)
      await store.stop()
    } else {
      await expect(started).rejects.toThrow(/Postgres 13\.4 in .* is too old: longshore needs 14 or newer/)
    }
  })

  it('a setting that Postgres refuses', async () => {
    await expect(startPostgres({ settings: { no_such_setting: 1 }, env: bareEnv() })).rejects.toThrow(
      /did not start[^]*no_such_setting/,
    )
  })

  it('an unknown choice and an unreachable DATABASE_URL', async () => {
    await expect(startPostgres({ env: bareEnv({ LONGSHORE_POSTGRES: 'best' }) })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining('choose "packaged" or "local"'),
    })
    const url = `postgres://postgres@127.0.0.1:${await freePort()}/postgres`
    await expect(startPostgres({ env: bareEnv({ DATABASE_URL: url }) })).rejects.toMatchObject({
      code: 'STORE_UNAVAILABLE',
      message: expect.stringContaining('unset DATABASE_URL'),
    })
  })
})
