import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { createProducer, defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { type Cli, spawnCli } from '../support/spawn-cli.ts'

const database = useDatabase({ isEmpty: true })
const folder = mkdtempSync(join(tmpdir(), 'longshore-cli-'))
const running: Cli[] = []

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
    for (const command of ['migrate', 'properties', 'relay', 'worker', 'dev'])
      expect(help.stdout).toContain(command)
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
    for (const command of [['migrate'], ['properties'], ['relay'], ['worker', 'x.js']]) {
      const { code, stderr } = await run(command, {})
      expect(code).toBe(2)
      expect(stderr).toContain('set DATABASE_URL [CONFIG_INVALID]')
    }
  })

  it('relay and worker say which command to run on an empty database, and end with 1', async () => {
    const tasks = module(
      'fine.mjs',
      'export default [{ task: { name: "t", queue: "q", tag: "t", maxAttempts: 1 }, run() {} }]',
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
    expect((await run(['migrate'])).stdout).toMatch(/^migration 0001_jobs\n.*done\n$/s)
    expect((await run(['migrate'])).stdout).toBe('nothing to do: the schema is current\n')
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

  it('[W16] worker runs the handlers of a module, and SIGTERM ends it in order', async () => {
    const tasks = module(
      'tasks.ts',
      `import { defineTask } from '${new URL('../../src/index.ts', import.meta.url).pathname}'
       export const handlers = [defineTask({ name: 'shout' }).handle(job => String(job.payload).toUpperCase())]`,
    )
    const worker = longshore(['worker', '--tags', 'default,loud', tasks, '--name', 'shouter'])
    await worker.says('running')
    const producer = createProducer({ postgres: database.url })
    const shout = defineTask({ name: 'shout' })
    expect(await producer.waitFor(await producer.enqueue(shout, 'hello'))).toMatchObject({ result: 'HELLO' })
    expect(await database.rows('select name, tags from longshore.workers')).toEqual([
      { name: 'shouter', tags: ['default', 'loud'] },
    ])
    worker.child.kill('SIGTERM')
    expect((await worker.ended).code).toBe(0)
    expect(await database.rows('select from longshore.workers')).toEqual([])
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
      'export default [{ task: { name: "t", queue: "q", tag: "t", maxAttempts: 1 }, run() {} }]',
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
})
