import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, afterEach, describe, expect, inject, it } from 'vitest'
import { createProducer, defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { parsePrometheus, type Scrape } from '../support/prometheus-text.ts'
import { eventually } from '../support/signals.ts'
import { type Cli, spawnCli } from '../support/spawn-cli.ts'

const database = useDatabase({ isEmpty: true })
const folder = mkdtempSync(join(tmpdir(), 'longshore-cli-'))
const running: Cli[] = []
/** For modules that the command line loads. */
const PACKAGE = new URL('../../dist/index.js', import.meta.url).pathname

const longshore = (args: string[], env: Record<string, string> = { DATABASE_URL: database.url }) => {
  const cli = spawnCli(args, env)
  running.push(cli)
  return cli
}
const run = (args: string[], env?: Record<string, string>) => longshore(args, env).ended

afterEach(async () => {
  for (const { child } of running) child.kill('SIGKILL')
  await Promise.all(running.splice(0).map(cli => cli.ended))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function module(name: string, text: string): string {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}

describe('longshore', () => {
  it('tells what it can do, and its version', async () => {
    const help = await run(['--help'])
    expect(help.code).toBe(0)
    for (const command of ['doctor', 'migrate', 'properties', 'queues', 'relay', 'watchdog', 'worker', 'dev'])
      expect(help.stdout).toContain(command)
    for (const command of ['cancel', 'explain', 'groups', 'workflows']) expect(help.stdout).toContain(command)
    expect((await run(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
  })

  it.each([
    [['frobnicate'], "unknown command 'frobnicate'"],
    [['migrate', '--dry'], "unknown option '--dry'"],
    [['worker'], "missing required argument 'module'"],
  ])('ends with 2 on wrong usage: %j', async (args, message) => {
    const { code, stderr } = await run(args)
    expect(code).toBe(2)
    expect(stderr).toContain(message)
  })

  it('ends with 2 and says what to set when no database is given', async () => {
    for (const command of [
      ['doctor'],
      ['migrate'],
      ['properties'],
      ['queues'],
      ['relay'],
      ['watchdog'],
      ['worker', 'x.js'],
    ]) {
      const { code, stderr } = await run(command, {})
      expect(code).toBe(2)
      expect(stderr).toContain('set DATABASE_URL, or put databaseUrl into the config file [CONFIG_INVALID]')
    }
  })

  it('relay and worker say which command to run on an empty database, and end with 1', async () => {
    const tasks = module(
      'fine.mjs',
      `import { defineTask } from '${PACKAGE}'
       export default [defineTask({ name: 't', queue: 'q', tag: 't' }).handle(() => {})]`,
    )
    for (const command of [['relay'], ['worker', tasks]]) {
      const { code, stderr } = await run(command)
      expect(code).toBe(1)
      expect(stderr).toContain('run `longshore migrate` [SCHEMA_MISSING]')
    }
  })

  it('migrate prints what it does; --dry-run prints SQL, --json one line; flags win over the environment', async () => {
    const dry = await run(['migrate', '--dry-run'])
    expect(dry.stdout).toContain('create table "longshore".jobs')
    expect((await run(['migrate'])).stdout).toMatch(
      /^migration 0001_schema\nschema longshore is installed: 1 migration, \d+ functions\. Next: .*`longshore worker <module>`.*\n$/,
    )
    expect((await run(['migrate'])).stdout).toBe('nothing to do: schema longshore is current\n')
    const other = await run(['migrate', '--json', '--schema', 'other', '--database-url', database.url], {
      DATABASE_URL: 'postgres://127.0.0.1:1/none',
    })
    expect(JSON.parse(other.stdout)).toMatchObject({ schema: 'other', dryRun: false })
    const { code, stderr } = await run(['migrate'], { DATABASE_URL: 'postgres://127.0.0.1:1/none' })
    expect(code).toBe(1)
    expect(stderr).toContain('ECONNREFUSED')
  })

  it.each([
    ['missing.mjs', undefined, 'cannot load'],
    ['broken.mjs', 'export default [', 'cannot load'],
    ['empty.mjs', 'export default []', 'must export a list of handlers'],
    ['other.mjs', 'export default { run() {} }', 'must export a list of handlers'],
  ])('worker refuses the module %s', async (name, text, message) => {
    const path = text === undefined ? join(folder, name) : module(name, text)
    const { code, stderr } = await run(['worker', path])
    expect(code).toBe(2)
    expect(stderr).toContain(message)
  })

  it('worker shows the stack of a module that throws, without frames of Node and of its own', async () => {
    module('license.mjs', `const key = undefined\nthrow new Error('no license key')`)
    const { code, stderr } = await run(['worker', module('throws.mjs', `import './license.mjs'`)])
    expect(code).toBe(2)
    expect(stderr).toBe(
      `longshore: cannot load ${join(folder, 'throws.mjs')}: Error: no license key\n    at file://${join(folder, 'license.mjs')}:2:7\n[CONFIG_INVALID]\n`,
    )
    const { stderr: other } = await run(['worker', module('throws-other.mjs', `throw 'nothing'`)])
    expect(other).toContain('throws-other.mjs: nothing [CONFIG_INVALID]')
  })

  it('[W16] worker runs the handlers of a module, and SIGTERM ends it in order', async () => {
    const tasks = module(
      'tasks.mjs',
      `import { defineTask } from '${PACKAGE}'
       export const handlers = [defineTask({ name: 'shout' }).handle(job => String(job.payload).toUpperCase())]`,
    )
    const worker = longshore(['worker', '--tags', 'default,loud', tasks, '--name', 'shouter'], {
      DATABASE_URL: database.url,
      LONGSHORE_LOG_LEVEL: 'debug',
    })
    await worker.says('running tasks shout; queues default; tags default, loud; properties none; ')
    await worker.says('; jobs come directly from Postgres\n')
    const producer = createProducer({ postgres: database.url })
    const shout = defineTask({ name: 'shout' })
    const ref = await producer.enqueue(shout, 'hello')
    expect(await producer.waitFor(ref)).toMatchObject({ result: 'HELLO' })
    expect(await database.rows('select name, tags from longshore.workers')).toEqual([
      { name: 'shouter', tags: ['default', 'loud'] },
    ])
    worker.child.kill('SIGTERM')
    const { code, stderr } = await worker.ended
    expect(code).toBe(0)
    expect(await database.rows('select from longshore.workers')).toEqual([])
    await producer.close()
    // Level `debug` tells when runs start and how they end, and nothing of what they carry.
    const lines = stderr.split('\n').flatMap(line => (line.startsWith('{') ? [JSON.parse(line)] : []))
    expect(lines.filter(({ job }) => job === ref.id)).toMatchObject([
      { level: 20, msg: 'a run starts', task: 'shout', attempt: 1 },
      {
        level: 20,
        msg: 'a run has ended',
        task: 'shout',
        attempt: 1,
        outcome: 'succeeded',
        ms: expect.any(Number),
      },
    ])
    expect(stderr).not.toMatch(/hello/i)
  })

  it('worker with a Redis that no relay keeps in step says so, and when one does', async () => {
    const tasks = module(
      'through.mjs',
      `import { defineTask } from '${PACKAGE}'
       export default [defineTask({ name: 'through' }).handle(() => {})]`,
    )
    const env = { DATABASE_URL: database.url, REDIS_URL: inject('redisUrl') }
    const worker = longshore(['worker', tasks, '--properties', 'gpu=a100'], env)
    await worker.says(
      'properties gpu=a100; jobs come directly from Postgres for now: no relay of this version is heard in Redis; start `longshore relay`',
    )
    await worker.says('because no relay keeps Redis in step: start `longshore relay`')
    const relay = longshore(['relay'], env)
    await worker.says('a relay keeps Redis in step: jobs come through Redis')
    const other = longshore(['worker', tasks], env)
    await other.says('; jobs come through Redis\n')
    for (const cli of [worker, other, relay]) {
      cli.child.kill('SIGTERM')
      expect((await cli.ended).code).toBe(0)
    }
    expect(worker.said().split('because no relay')).toHaveLength(2)
    expect(other.said()).not.toContain('no relay')
  })

  it('ends quietly when nobody reads on', async () => {
    const command = `"${process.execPath}" dist/cli/main.js worker --help | head -1`
    const { stdout, stderr } = await promisify(execFile)('sh', ['-c', command])
    expect([stdout, stderr]).toEqual(['Usage: longshore worker [options] <module>\n', ''])
  })

  it('[W16] worker is drained by SIGUSR2, resumed by the next, and runs modules in threads', async () => {
    module('thread.mjs', 'export default job => -job.payload')
    const tasks = module(
      'threaded.mjs',
      `import { defineTask } from '${PACKAGE}'
       export default [defineTask({ name: 'turn' }).handle({ isolate: 'thread', module: new URL('./thread.mjs', import.meta.url) })]`,
    )
    const worker = longshore(['worker', tasks])
    await worker.says('running')
    const producer = createProducer({ postgres: database.url })
    const turn = defineTask<number>({ name: 'turn' })
    expect(await producer.waitFor(await producer.enqueue(turn, 1))).toMatchObject({ result: -1 })
    worker.child.kill('SIGUSR2')
    await worker.says('SIGUSR2, drained')
    const later = await producer.enqueue(turn, 2)
    expect((await producer.explain(later.id))?.reasons).toMatchObject([{ kind: 'drained' }])
    worker.child.kill('SIGUSR2')
    await worker.says('SIGUSR2, resumed')
    expect(await producer.waitFor(later)).toMatchObject({ result: -2 })
    worker.child.kill('SIGUSR2')
    await worker.says(
      'again to resume)\nlongshore worker: SIGUSR2, resumed, takes jobs\nlongshore worker: SIGUSR2, drained',
    )
    worker.child.kill('SIGTERM')
    expect((await worker.ended).code).toBe(0)
    await producer.close()
  })

  it('[C1] properties shows the declared keys and declares others, at most three', async () => {
    expect((await run(['properties'])).stdout).toBe('gpu\nmem\nregion\n')
    const fourth = await run(['properties', 'gpu', 'mem', 'region', 'zone'])
    expect(fourth.code).toBe(2)
    expect(fourth.stderr).toContain('gpu, mem, region, zone are 4 keys, at most 3 are possible')
    expect(fourth.stderr).toContain('[CONSTRAINT_INVALID]')
    expect((await run(['properties', 'zone', 'gpu', '--json'])).stdout).toBe(
      '{"schema":"longshore","keys":["zone","gpu"]}\n',
    )
    expect((await run(['properties', '--none'])).stdout).toBe('no keys are declared\n')
    expect((await run(['properties', '--json'])).stdout).toBe('{"schema":"longshore","keys":[]}\n')
    expect((await run(['properties', '--none', 'gpu'])).code).toBe(2)
    await run(['properties', 'gpu', 'mem', 'region'])
  })

  it('[C9] worker takes --properties, and refuses undeclared and malformed ones', async () => {
    const tasks = module(
      'propertied.mjs',
      `import { defineTask } from '${PACKAGE}'
       export default [defineTask({ name: 't', queue: 'q', tag: 't' }).handle(() => {})]`,
    )
    const worker = longshore(['worker', tasks, '--properties', 'mem=high,gpu=a%2C100 %25'])
    await worker.says('running')
    expect(await database.rows('select properties from longshore.workers')).toEqual([
      { properties: { mem: 'high', gpu: 'a,100 %' } },
    ])
    worker.child.kill('SIGTERM')
    await worker.ended
    for (const [pairs, message] of [
      ['zone=a', 'property key "zone" is not declared; declared are: gpu, mem, region'],
      ['gpu', 'takes pairs like gpu=a100,mem=high'],
      ['gpu=50%', 'takes pairs like'],
      ['gpu=a,gpu=b', 'each key once'],
      ['__proto__=a', '"__proto__" is not a valid key'],
    ] as const) {
      const { code, stderr } = await run(['worker', tasks, '--properties', pairs])
      expect(stderr).toContain(message)
      expect(code).toBe(2)
    }
  })

  it('relay leads until SIGTERM', async () => {
    const relay = longshore(['relay'])
    await relay.says('running')
    const leads = async () =>
      (await database.rows("select from longshore.leader where holder like 'relay %' and expires_at > now()"))
        .length === 1
    while (!(await leads()));
    relay.child.kill('SIGTERM')
    expect((await relay.ended).code).toBe(0)
    expect(await leads()).toBe(false)
  })

  it('[D1] queues shows how queues are spread, and sets it for one', async () => {
    await database.rows('delete from longshore.queues')
    const set = await run(['queues', 'mail', '--schedule-mode', 'balanced', '--balance-strategy', 'random'])
    expect(set.stdout).toBe('mail: balanced, random\n')
    await run(['queues', 'films', '--fanout-width', '3'])
    const [all, json, nothing] = await Promise.all([
      run(['queues']),
      run(['queues', 'films', '--json']),
      run(['queues', 'nothing']),
    ])
    expect(all.stdout.split('\n')).toEqual(
      expect.arrayContaining(['films: width 3', 'mail: balanced, random']),
    )
    expect(JSON.parse(json.stdout)).toEqual({
      schema: 'longshore',
      maxQueues: 1000,
      queues: [{ name: 'films', scheduleMode: null, balanceStrategy: null, fanoutWidth: 3 }],
    })
    expect(nothing.stdout).toBe('there is no queue nothing\n')
    expect((await run(['queues', 'mail', '--default'])).stdout).toBe("mail: the relay's own settings\n")
    await database.rows('delete from longshore.queues')
  })

  it('[X12] queues --max sets how many queues there may be', async () => {
    expect((await run(['queues', '--max', '20'])).stdout).toContain('there may be at most 20 queues\n')
    expect(JSON.parse((await run(['queues', '--json'])).stdout)).toMatchObject({ maxQueues: 20 })
    expect(await run(['queues', '--max', '0'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('whole number from 1 to 1000000'),
    })
    await run(['queues', '--max', '1000'])
  })

  it('[S12] watchdog shows when a group is reported, and sets it', async () => {
    expect((await run(['watchdog'])).stdout).toBe(
      'a group that does not move for 10m although it could is reported\n',
    )
    expect((await run(['watchdog', '--after', '5m', '--cancel'])).stdout).toContain(
      '5m although it could is reported and cancelled',
    )
    expect(JSON.parse((await run(['watchdog', '--no-cancel', '--json'])).stdout)).toEqual({
      schema: 'longshore',
      afterMs: 300_000,
      cancel: false,
    })
    expect(await run(['watchdog', '--after', 'soon'])).toMatchObject({ code: 2 })
    await run(['watchdog', '--after', '10m'])
  })

  it('[X8] relay serves its metrics, and says where', async () => {
    const producer = createProducer({ postgres: database.url })
    await producer.enqueueMany(defineTask<number>({ name: 'measured', queue: 'measured' }), [1, 2, 3])
    const relay = longshore(['relay', '--metrics-port', '0'], {
      DATABASE_URL: database.url,
      REDIS_URL: inject('redisUrl'),
    })
    await relay.says('/metrics')
    const url = /metrics at (http:\/\/127\.0\.0\.1:\d+\/metrics)/.exec(relay.said())?.[1] ?? ''
    const scrape = async () => {
      const response = await fetch(url)
      expect(response.headers.get('content-type')).toContain('text/plain')
      return parsePrometheus(await response.text())
    }
    await eventually('the queue is in Redis', async () => jobsIn(await scrape()) === 3)
    const [before] = await database.rows<{ generation: string }>(
      "select generation from longshore.relayed where queue = 'measured'",
    )
    await producer.enqueueMany(defineTask<number>({ name: 'measured', queue: 'measured' }), [4, 5])
    await eventually('five are there', async () => jobsIn(await scrape()) === 5)
    const metrics = await scrape()
    expect(metrics.figure('longshore_relay_is_leader')).toBe(1)
    expect(metrics.figure('longshore_relay_lag_seconds')).toBeGreaterThanOrEqual(0)
    expect(metrics.figure('longshore_relay_applied_total')).toBeGreaterThan(0)
    const labels = { queue: 'measured', generation: String(before?.generation) }
    expect(metrics.figure('longshore_relay_queue_is_live', labels)).toBe(1)
    expect((await fetch(url.replace('/metrics', '/'))).status).toBe(404)

    // A second one stands by; the same port is refused, and nothing is left running.
    const port = new URL(url).port
    const taken = await run(['relay', '--metrics-port', port])
    expect(taken.stderr).toContain(`metrics cannot be served on port ${port}`)
    expect(taken.code).toBe(2)
    const none = await run(['relay', '--metrics-port', 'http'])
    expect(none.stderr).toContain('flag --metrics-port must be a whole number from 0 to 65535; got http')
    expect(none.code).toBe(2)

    relay.child.kill('SIGTERM')
    expect((await relay.ended).code).toBe(0)
    await producer.close()
  })

  it('dev gives a migrated Postgres and a Redis, and takes them along when it ends', async () => {
    const dev = longshore(['dev'], {})
    await dev.says('export REDIS_URL=')
    dev.child.kill('SIGINT')
    const { code, stdout, stderr } = await dev.ended
    expect(code).toBe(0)
    expect(stdout).toMatch(/^export DATABASE_URL=postgres:\/\/\S+\nexport REDIS_URL=redis:\/\/\S+\n$/)
    expect(stderr).toContain('Postgres 1')
    const url = /DATABASE_URL=(\S+)/.exec(stdout)?.[1] ?? ''
    expect((await run(['migrate'], { DATABASE_URL: url })).stderr).toContain('ECONNREFUSED')
  })

  it('dev keeps data and ports below a folder that only its user may enter, until the next time', async () => {
    const home = join(folder, 'home')
    mkdirSync(home, { mode: 0o700 })
    const args = ['dev', '--data-dir', join(home, 'dev')]
    const start = async (...more: string[]) => {
      const dev = longshore([...args, ...more], {})
      await dev.says('export REDIS_URL=')
      const [, postgres = '', redis = ''] =
        /DATABASE_URL=(\S+)\nexport REDIS_URL=(\S+)/.exec(dev.said()) ?? []
      return { dev, postgres, redis }
    }
    const stop = async (dev: Cli) => {
      dev.child.kill('SIGTERM')
      expect((await dev.ended).code).toBe(0)
    }
    const first = await start()
    const second = await run(args, {})
    expect(second.stderr).toContain('already runs on')
    expect(second.code).toBe(1)
    const before = createProducer({ postgres: first.postgres })
    const ref = await before.enqueue(defineTask<number>({ name: 'kept' }), 7)
    await before.close()
    await stop(first.dev)

    const again = await start()
    expect([again.postgres, again.redis]).toEqual([first.postgres, first.redis])
    const after = createProducer({ postgres: again.postgres })
    expect(await after.get(ref)).toMatchObject({ state: 'ready', payload: 7 })
    await after.close()
    // Given ones are used, and what is taken is told with what to do.
    const taken = await run(['dev', '--port', new URL(again.postgres).port], {})
    expect(taken.stderr).toContain('is in use; choose another or leave it out')
    expect(taken.code).toBe(1)
    await stop(again.dev)
    expect((await run(['dev', '--redis-port', '0'], {})).stderr).toContain('a whole number from 1 to 65535')
  })
})

const jobsIn = (scrape: Scrape) => scrape.find('longshore_relay_queue_jobs', { queue: 'measured' })[0]?.value
