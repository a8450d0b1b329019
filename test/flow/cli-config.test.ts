/** Settings and signals of the command line, as processes meet them. */
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { createProducer, defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { type Cli, spawnCli } from '../support/spawn-cli.ts'

const database = useDatabase()
const folder = realpathSync(mkdtempSync(join(tmpdir(), 'longshore-config-')))
const running: Cli[] = []
const NONE = 'postgres://ada:hush@127.0.0.1:1/none'

const longshore = (args: string[], env: Record<string, string> = {}, cwd?: string) => {
  const cli = spawnCli(args, env, cwd)
  running.push(cli)
  return cli
}
const run = (args: string[], env?: Record<string, string>, cwd?: string) => longshore(args, env, cwd).ended

afterEach(async () => {
  for (const { child } of running) child.kill('SIGKILL')
  await Promise.all(running.splice(0).map(cli => cli.ended))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function file(name: string, content: string | object): string {
  const path = join(folder, name)
  mkdirSync(join(path, '..'), { recursive: true })
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
  return path
}

/** A module whose handler ends only when its signal fires, or not even then. */
function tasks(name: string, onAbort: 'stop' | 'go on', others = ''): string {
  return file(
    name,
    `import { defineTask } from '${new URL('../../dist/index.js', import.meta.url).href}'
     ${others}
     export default [defineTask({ name: 'wait' }).handle((_, { signal }) => new Promise((_, reject) => {
       if ('${onAbort}' === 'stop') signal.addEventListener('abort', () => reject(signal.reason))
       console.log('inside')
     }))]`,
  )
}

describe('the config file', () => {
  it('is found in the working directory, by environment or by flag, and gives every command its database', async () => {
    const here = join(folder, 'here')
    const json = file('here/longshore.config.json', { databaseUrl: NONE, worker: { claimBatchSize: 7 } })
    const other = file('other.mjs', `export default { databaseUrl: '${database.url}', schema: 'second' }`)
    const show = async (args: string[], env = {}) =>
      JSON.parse((await run(['worker', 'x.js', '--print-config', '--json', ...args], env, here)).stdout)
        .settings
    expect((await show([])).worker.claimBatchSize).toEqual({
      value: 7,
      source: `config file ${json}, key worker.claimBatchSize`,
    })
    expect((await show([], { LONGSHORE_CONFIG: other })).schema).toEqual({
      value: 'second',
      source: `config file ${other}, key schema`,
    })
    expect((await show(['--config', json], { LONGSHORE_CONFIG: other })).schema.value).toBe('longshore')
    expect((await run(['migrate'], {}, here)).stderr).toContain('ECONNREFUSED')
    const migrated = await run(['migrate', '--json', '--config', other], {}, here)
    expect(JSON.parse(migrated.stdout)).toMatchObject({ schema: 'second' })
    const flagged = await run(['migrate', '--json', '--config', other, '--schema', 'longshore'], {}, here)
    expect(JSON.parse(flagged.stdout)).toEqual({ schema: 'longshore', dryRun: false, steps: [] })
  })

  it.each([
    [['--config', 'missing.json'], {}, 'flag --config: there is no config file'],
    [[], { LONGSHORE_CONFIG: 'missing.json' }, 'environment LONGSHORE_CONFIG: there is no config file'],
    [['--config', 'broken.json'], {}, 'is not valid JSON in line 2'],
    [['--config', 'broken.mjs'], {}, 'broken.mjs: SyntaxError'],
    [['--config', 'nothing.mjs'], {}, 'must export the settings: export default {'],
  ])('is refused if it cannot be read: %j %j', async (args, env, message) => {
    file('broken.json', '{ "databaseUrl": "postgres://ada:hush@h/d",\n hush }')
    file('broken.mjs', 'export default {')
    file('nothing.mjs', 'export const databaseUrl = 5')
    for (const command of [['relay'], ['doctor']]) {
      const { code, stderr } = await run([...command, ...args], env, folder)
      expect(stderr).toContain(message)
      expect(stderr).not.toContain('hush')
      expect(stderr).not.toContain('no database given')
      expect(code).toBe(2)
    }
  })
})

describe('--print-config', () => {
  it('tells what holds and where it comes from, without credentials', async () => {
    const args = ['relay', '--print-config', '--queue-depth', '7']
    const env = { DATABASE_URL: NONE, REDIS_URL: 'redis://:hush@cache:6379' }
    const { code, stdout, stderr } = await run(args, env, folder)
    expect(stderr).toBe('')
    expect(code).toBe(0)
    const rows = stdout.split('\n').map(row => row.split(/ {2,}/))
    expect(rows).toEqual(
      expect.arrayContaining([
        ['databaseUrl', 'postgres://***@127.0.0.1:1/none', 'environment DATABASE_URL'],
        ['redisUrl', 'redis://***@cache:6379', 'environment REDIS_URL'],
        ['relay.queueDepth', '7', 'flag --queue-depth'],
        ['relay.laneWindow', '4000', 'default'],
        ['relay.metricsPort', '-', 'default: not served'],
      ]),
    )
  })

  it('tells all problems too, and ends with 2', async () => {
    const config = file('wrong.json', { worker: { leese: '5s' } })
    const args = ['worker', 'x.js', '--config', config, '--stop-deadline', 'soon', '--print-config']
    const table = await run(args, { MAX_CONCURRENT_TASKS: '0' })
    const json = await run([...args, '--json'], { MAX_CONCURRENT_TASKS: '0' })
    expect(table.stdout).toMatch(/worker\.stopDeadline +\(wrong\) +flag --stop-deadline\n/)
    expect(JSON.parse(json.stdout).settings.worker.stopDeadline.value).toBe(null)
    const problems: string[] = JSON.parse(json.stdout).problems
    expect(problems).toHaveLength(4)
    for (const { code, stderr } of [table, json]) {
      expect(stderr).toBe(
        `longshore: 4 settings are wrong:\n${problems.map(text => `  - ${text}\n`).join('')}[CONFIG_INVALID]\n`,
      )
      expect(code).toBe(2)
    }
  })
})

describe('longshore worker', () => {
  it('tells all problems before it loads the module, and ends with 2', async () => {
    const config = file('negative.json', { redisUrl: 'http://cache', worker: { stall: -1 } })
    const module = file('speaks.mjs', 'console.log("loaded")')
    const { code, stdout, stderr } = await run(
      ['worker', module, '--config', config, '--lease', '5x', '--property', 'gpu', '--log-level', 'loud'],
      { CLAIM_BATCH_SIZE: 'all' },
    )
    for (const told of [
      'longshore: 7 settings are wrong:',
      `config file ${config}, key redisUrl must start with redis:// or rediss://; got http://…`,
      `config file ${config}, key worker.stall must be a duration`,
      'flag --lease must be a duration from 100ms to 1h',
      'flag --property takes pairs',
      'flag --log-level must be one of',
      'environment CLAIM_BATCH_SIZE must be a whole number from 1 to 1000; got all',
      'no database given',
    ])
      expect(stderr).toContain(told)
    expect(stdout).toBe('')
    expect(code).toBe(2)
  })

  it('[C9] offers the tags and properties of its flags', async () => {
    const flags = ['--tags', 'node', '--property', 'gpu=a,100', '--property', 'mem=high', '--lease', '20s']
    const worker = longshore(['worker', tasks('offers.mjs', 'stop'), ...flags], {
      DATABASE_URL: database.url,
    })
    await worker.says('running')
    expect(await database.rows('select tags, properties from longshore.workers')).toEqual([
      { tags: ['node'], properties: { gpu: 'a,100', mem: 'high' } },
    ])
    worker.child.kill('SIGINT')
    expect((await worker.ended).code).toBe(0)
  })

  it('shows in its help the default and the variable of a setting, and the exit codes', async () => {
    const { stdout } = await run(['worker', '--help'])
    const help = stdout.replaceAll(/\s+/g, ' ')
    expect(help).toContain('--stop-deadline <duration> how long running jobs may go on')
    expect(help).toContain('(default: 30s; env: LONGSHORE_STOP_DEADLINE)')
    expect(help).toContain('130 (SIGINT) or 143 (SIGTERM)')
    expect((await run(['--help'])).stdout).toContain('Exit codes: 0 done')
  })
})

describe('a signal', () => {
  const wait = defineTask({ name: 'wait' })

  async function busy(module: string, flags: string[]) {
    const producer = createProducer({ postgres: database.url })
    const worker = longshore(['worker', module, ...flags], { DATABASE_URL: database.url })
    const ref = await producer.enqueue(wait, 1)
    await worker.says('inside')
    return {
      worker,
      job: () => producer.get(ref),
      end: () => producer.cancel(ref).then(() => producer.close()),
    }
  }

  it('[W16] stops a worker within the deadline that it tells, and what does not stop is given back', async () => {
    // What the module holds open must not hold the process.
    const module = tasks('holds.mjs', 'go on', 'setInterval(() => undefined, 1000)')
    const { worker, job, end } = await busy(module, ['--stop-deadline', '150ms', '--abort-grace', '0ms'])
    worker.child.kill('SIGTERM')
    const { code, stderr } = await worker.ended
    expect(stderr).toContain('longshore worker: SIGTERM, stopping; running jobs get 150ms (again to force)\n')
    expect(code).toBe(0)
    expect(await job()).toMatchObject({ state: 'ready', attempts: 0 })
    expect(await database.rows('select from longshore.workers')).toEqual([])
    await end()
  })

  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('[W16] forces the end when it is the second: %s', async (signal, code) => {
    const { worker, job, end } = await busy(tasks('forced.mjs', 'stop'), ['--stop-deadline', '1h'])
    worker.child.kill('SIGTERM')
    await worker.says('running jobs get 1h (again to force)')
    worker.child.kill(signal)
    expect((await worker.ended).code).toBe(code)
    expect(await job()).toMatchObject({ state: 'running' })
    await database.rows('delete from longshore.workers')
    await end()
  })

  it('is heeded while the stores do not answer yet', async () => {
    const silent = createServer(() => undefined).listen(0, '127.0.0.1')
    await once(silent, 'listening')
    const url = `postgres://127.0.0.1:${(silent.address() as AddressInfo).port}/none`
    for (const command of [['relay'], ['worker', tasks('early.mjs', 'stop')]]) {
      const reached = once(silent, 'connection')
      const cli = longshore(command, { DATABASE_URL: url })
      await reached
      cli.child.kill('SIGTERM')
      await cli.says(`longshore ${command[0]}: SIGTERM, stopping`)
      cli.child.kill('SIGTERM')
      expect((await cli.ended).code).toBe(143)
    }
    silent.close()
  })

  it('is not needed to end a worker whose start failed, whatever its module holds', async () => {
    const module = tasks('held.mjs', 'stop', 'setInterval(() => undefined, 1000)')
    const { code, stderr } = await run(['worker', module, '--schema', 'missing'], {
      DATABASE_URL: database.url,
    })
    expect(stderr).toContain('[SCHEMA_MISSING]')
    expect(code).toBe(1)
  })
})
