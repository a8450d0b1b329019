import { existsSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { openGuardian } from '../../src/dev/guardian.ts'
import { type PostgresOptions, type Store, startPostgres } from '../../src/dev/index.ts'
import { freePort } from '../../src/dev/owned-server.ts'
import { tryBinaries } from '../../src/dev/postgres/binaries.ts'
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

describe.skipIf(!hasLocalPostgres)('the machine’s own Postgres (needs one on this machine)', () => {
  it('is used with LONGSHORE_POSTGRES=local, replica included; one that is too old is passed over', async () => {
    const folder = await testFolder()
    for (const name of ['postgres', 'initdb']) {
      await writeProgram(folder, name, 'echo "postgres (PostgreSQL) 13.4"')
    }
    const env = bareEnv({ LONGSHORE_POSTGRES: 'local' })
    const store = await start({ env: { ...env, PATH: `${folder}:${env['PATH']}` } })
    expect(store.choice).toMatch(/the machine's own in .*, LONGSHORE_POSTGRES=local/)
    expect(Number.parseInt(store.version, 10)).toBeGreaterThanOrEqual(14)
    const replica = await start({ replicaOf: store, env })
    expect(await query(replica.url, 'select pg_is_in_recovery() as standby')).toEqual([{ standby: true }])
  })
})

it('a Postgres that is too old is named', async () => {
  const folder = await testFolder()
  for (const name of ['postgres', 'initdb']) {
    await writeProgram(folder, name, 'echo "postgres (PostgreSQL) 13.4"')
  }
  const guardian = openGuardian()
  onTestFinished(() => guardian.end())
  await expect(tryBinaries(guardian, folder)).rejects.toThrow(
    /Postgres 13\.4 in .* too old: longshore needs 14/,
  )
})

describe('a folder that is kept', () => {
  let folder: string
  let dataDir: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'stores-test-'))
    await chmod(folder, 0o755)
    dataDir = join(folder, 'data')
    // As an initdb that was cut off would leave it.
    await mkdir(join(dataDir, 'longshore-partial/base'), { recursive: true })
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  it('is filled after a first try that was cut off, and holds what was committed before kill -9', async () => {
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
    const store = await start({ dataDir })
    await store.kill()
    const lock = join(dataDir, 'postmaster.pid')
    await writeFile(lock, (await readFile(lock, 'utf8')).replace(/^\d+/, String(process.ppid)))
    await store.restart()
    expect(await query(store.url, 'select 1 as one')).toEqual([{ one: 1 }])
  })

  it('is refused to a second server while the first one runs', async () => {
    const store = await start({ dataDir })
    await expect(startPostgres({ dataDir, env: bareEnv() })).rejects.toThrow(/already runs on/)
    expect(await query(store.url, 'select 1 as one')).toEqual([{ one: 1 }])
  })

  it('is not started on a port in use, or with a setting that Postgres refuses', async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    onTestFinished(() => void taken.close())
    await new Promise(resolve => taken.once('listening', resolve))
    const { port } = taken.address() as { port: number }
    await expect(startPostgres({ dataDir, port, env: bareEnv() })).rejects.toThrow(
      `port ${port} on 127.0.0.1 is in use`,
    )
    const settings = { no_such_setting: 1 }
    await expect(startPostgres({ dataDir, settings, env: bareEnv() })).rejects.toThrow(
      /did not start(.|\n)*no_such_setting/,
    )
  })

  it('is refused if another version or something else filled it', async () => {
    const foreign = await testFolder()
    await writeFile(join(foreign, 'thesis.tex'), '')
    const before = await stat(join(foreign, 'thesis.tex'))
    const starting = () => startPostgres({ dataDir: foreign, env: bareEnv() })
    await expect(starting()).rejects.toThrow(/holds something else \(thesis\.tex/)
    await writeFile(join(foreign, 'PG_VERSION'), '9.6\n')
    await expect(starting()).rejects.toThrow(/made by Postgres 9\.6/)
    expect((await stat(join(foreign, 'thesis.tex'))).uid).toBe(before.uid)
  })

  it.skipIf(!isRoot || process.platform !== 'linux')(
    'may lie below a folder that only root may enter (needs root and Linux)',
    async () => {
      const home = join(await testFolder(), 'home')
      await mkdir(home, { mode: 0o700 })
      const given = { dataDir: join(home, 'data'), env: bareEnv() }
      const first = await startPostgres(given)
      const port = Number(new URL(first.url).port)
      await query(first.url, 'create table public.kept ()')
      await first.kill()
      await first.restart()
      await query(first.url, 'checkpoint')
      await first.stop()
      const again = await startPostgres({ ...given, port })
      expect(again.url).toBe(first.url)
      await query(again.url, 'table public.kept')
      await again.stop()
      expect((await stat(home)).mode & 0o777).toBe(0o700)
    },
  )
})

describe('a server that is asked for with options', () => {
  let store: Store
  beforeAll(async () => {
    store = await startPostgres({
      own: true,
      tls: hasOpenssl,
      settings: { fsync: false, shared_buffers: '32MB', 'longshore.note': "it's \\ fine" },
      env: bareEnv({ DATABASE_URL: 'postgres://nobody@nowhere/nothing' }),
    })
  })

  it('starts beside DATABASE_URL, and the caller’s settings come last', async () => {
    const names = ['fsync', 'shared_buffers', 'longshore.note']
    const [row] = await query(
      store.url,
      `select ${names.map((name, i) => `current_setting('${name}') as s${i}`)}`,
    )
    expect(Object.values(row ?? {})).toEqual(['off', '32MB', "it's \\ fine"])
  })

  it.skipIf(!hasOpenssl)('speaks only TLS, and the client verifies it (needs openssl)', async () => {
    const text = 'select ssl from pg_stat_ssl where pid = pg_backend_pid()'
    expect(await query(store.url, text)).toEqual([{ ssl: true }])
    const plain = new URL(store.url)
    plain.search = ''
    await expect(query(plain.href, 'select 1')).rejects.toThrow(/no encryption/)
  })

  it('ends with stop(), which removes its folder and may be called again', async () => {
    const { pid, dataDir } = store
    await Promise.all([store.stop(), store.stop()])
    await store.stop()
    expect(store.pid).toBeUndefined()
    expect(isRunning(pid as number)).toBe(false)
    expect(existsSync(dirname(dataDir as string))).toBe(false)
    await expect(store.restart()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
  })
})

it('an unknown choice and an unreachable DATABASE_URL are errors that say what to do', async () => {
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
