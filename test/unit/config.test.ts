import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { createRelay, createWorker, defineTask, type WorkerOptions } from '../../src/index.ts'
import { readConfig, readOptions, toFlag } from '../../src/runtime/config.ts'
import { entriesOf, type Section } from '../../src/runtime/settings.ts'

const worker = (from: { flags?: object; env?: NodeJS.ProcessEnv; content?: unknown }) => {
  const { values, settings, problems } = readConfig({
    section: 'worker',
    flags: { ...from.flags },
    env: from.env ?? {},
    file: 'content' in from ? { path: 'file.json', content: from.content } : undefined,
  })
  return {
    values,
    problems: problems.map(problem => problem.message),
    sources: Object.fromEntries(settings.map(({ key, source }) => [key, source])),
  }
}

describe('the settings of a command', () => {
  it('[W3] [W4] [W5] have the documented defaults', () => {
    const { values, problems } = worker({})
    expect(problems).toEqual([])
    expect(values).toMatchObject({
      schema: 'longshore',
      logLevel: 'warn',
      maxConcurrentTasks: 1000,
      claimBatchSize: 50,
      pollInterval: 100,
      memoryThreshold: 0.8,
      lease: 15_000,
      stopDeadline: 30_000,
    })
  })

  it('[D1] come from flags before the environment before the file before the defaults', () => {
    const content = {
      schema: 'file',
      worker: { maxConcurrentTasks: 1, claimBatchSize: 2, pollInterval: 3 },
    }
    const env = { MAX_CONCURRENT_TASKS: '4', CLAIM_BATCH_SIZE: '5' }
    const { values, sources, problems } = worker({ flags: { maxConcurrentTasks: '6' }, env, content })
    expect(problems).toEqual([])
    expect(values).toMatchObject({
      schema: 'file',
      maxConcurrentTasks: 6,
      claimBatchSize: 5,
      pollInterval: 3,
    })
    expect(sources).toMatchObject({
      schema: 'config file file.json, key schema',
      maxConcurrentTasks: 'flag --max-concurrent-tasks',
      claimBatchSize: 'environment CLAIM_BATCH_SIZE',
      pollInterval: 'config file file.json, key worker.pollInterval',
      lease: 'default',
    })
  })

  it('are told with all problems of all sources at once, each with where it came from', () => {
    const { problems } = worker({
      flags: { lease: '99', tags: '', properties: 'gpu' },
      env: { MAX_CONCURRENT_TASKS: 'many', POLL_INTERVAL_MS: '1.5', LONGSHORE_LOG_LEVEL: 'loud' },
      content: {
        schema: 'Robert"; drop',
        worker: { claimBatchSize: '5', stall: null },
        relay: { queueDepth: 0 },
      },
    })
    expect(problems.sort()).toEqual([
      'config file file.json, key relay.queueDepth must be a whole number from 1 to 10000; got 0',
      'config file file.json, key schema is not a valid name: use at most 41 of a-z, 0-9 and _, not starting with a digit; got "Robert\\"; drop"',
      'config file file.json, key worker.claimBatchSize must be a whole number from 1 to 1000; got 5',
      'config file file.json, key worker.stall must be a duration from 100ms to 1d, in milliseconds or with a unit (500ms, 30s, 5m, 2h, 1d); got null',
      'environment LONGSHORE_LOG_LEVEL must be one of silent, fatal, error, warn, info, debug, trace; got loud',
      'environment MAX_CONCURRENT_TASKS must be a whole number from 1 to 100000; got many',
      'environment POLL_INTERVAL_MS must be a duration from 1ms to 1h, in milliseconds or with a unit (500ms, 30s, 5m, 2h, 1d); got 1.5',
      'flag --lease must be a duration from 100ms to 1h, in milliseconds or with a unit (500ms, 30s, 5m, 2h, 1d); got 99',
      'flag --properties takes pairs like gpu=a100,mem=high, each key once, with , = % in values as %2C %3D %25; got gpu',
      'flag --tags: tag must be a text of 1 to 100 characters without control characters; got ""',
    ])
  })

  it('are not looked at in the environment where a flag comes before: it may be meant for somebody else', () => {
    const env = { DATABASE_URL: 'mysql://x', MAX_CONCURRENT_TASKS: '', LONGSHORE_LEASE: '2s' }
    const { values, problems } = worker({ flags: { databaseUrl: 'postgres://h/d' }, env })
    expect(problems).toEqual([])
    expect(values).toMatchObject({ databaseUrl: 'postgres://h/d', maxConcurrentTasks: 1000, lease: 2000 })
  })

  it.each([
    [{ databaseURL: 'x' }, 'key databaseURL is unknown: did you mean databaseUrl?'],
    [
      { worker: { maxConcurentTasks: 5 } },
      'key worker.maxConcurentTasks is unknown: did you mean maxConcurrentTasks?',
    ],
    [{ claimBatchSize: 5 }, 'key claimBatchSize is unknown: it belongs in worker'],
    [{ relay: { schema: 'x' } }, 'key relay.schema is unknown: it belongs at the top'],
    [
      { colour: 'red' },
      'key colour is unknown; known are databaseUrl, listenUrl, redisUrl, schema, logLevel, worker, relay',
    ],
    [{ worker: 5 }, 'key worker must be an object of settings; got 5'],
    [{ worker: { tags: [5, 6] } }, 'key worker.tags: tag must be a text of 1 to 100 characters'],
    [{ worker: { properties: { GPU: 'a' } } }, 'key worker.properties: properties: "GPU" is not a valid key'],
    [[], 'config file file.json must be an object of settings; got a list'],
  ])('are refused in a file: %j', (content, message) => {
    const { problems } = worker({ content })
    expect(problems).toHaveLength(1)
    expect(problems[0]).toContain(message)
  })

  it('[C4] take properties as a list, or one by one as they are', () => {
    const properties = { gpu: 'a,100', mem: '50% = half' }
    expect(worker({ flags: { properties: 'gpu=a%2C100,mem=50%25 %3D half' } }).values).toMatchObject({
      properties,
    })
    const one = worker({ flags: { properties: 'gpu=a%2C100', property: ['mem=50% = half'] } })
    expect(one).toMatchObject({ values: { properties }, problems: [] })
    for (const property of [['gpu'], ['gpu='], ['=a'], ['gpu=a', 'gpu=b']])
      expect(worker({ flags: { property } }).problems).toEqual([
        expect.stringContaining('flag --property takes pairs'),
      ])
  })

  it('never show what may be a password', () => {
    for (const url of ['mysql://ada:hush@h/d', 'ada:hush@h/d', 'hush']) {
      for (const wrong of [{ flags: { databaseUrl: url } }, { content: { redisUrl: [url] } }])
        expect(worker(wrong).problems).toEqual([expect.not.stringContaining('hush')])
    }
    const show = (key: string, text: string) =>
      entriesOf('shared')
        .find(([name]) => name === key)?.[1]
        .type.show(text)
    expect(show('databaseUrl', 'postgres://ada:hu@s/h@h:5/d?sslmode=require&password=hush&x=1')).toBe(
      'postgres://***@h:5/d?sslmode=require&password=***&x=1',
    )
    expect(show('redisUrl', 'redis://:hush,hush@a:1,rediss://b:2')).toBe('redis://***@a:1,rediss://b:2')
  })
})

describe('the options of the API', () => {
  const handlers = [defineTask({ name: 'noop' }).handle(() => undefined)]
  const thrown = (make: () => unknown): { code?: string; message?: string } => {
    try {
      make()
    } catch (error) {
      return error as object
    }
    return {}
  }

  it('[W3] come before the environment', () => {
    const env = {
      MAX_CONCURRENT_TASKS: '5',
      CLAIM_BATCH_SIZE: '6',
      LONGSHORE_SCHEMA: 'other',
      LONGSHORE_STALL: '9s',
    }
    const known = ['schema', 'maxConcurrentTasks', 'claimBatchSize', 'stall']
    expect(readOptions('worker', 'createWorker', { claimBatchSize: 7 }, known, env)).toMatchObject({
      // The environment names the schema for commands only.
      schema: 'longshore',
      maxConcurrentTasks: 5,
      claimBatchSize: 7,
      stall: 9000,
    })
  })

  it('are refused all at once', () => {
    const wrong = {
      handlers: [],
      postgres: 'mysql://ada:hush@h',
      redis: ['http://h'],
      schema: 'A',
      lease: '2h',
      maxResultBytes: 0,
      properties: { GPU: 'x' },
      colour: 'red',
      logger: console,
    } as unknown as WorkerOptions
    const { code, message } = thrown(() => createWorker(wrong))
    expect(code).toBe('CONFIG_INVALID')
    expect(message).toMatch(/^9 settings are wrong:\n/)
    for (const told of [
      'unknown option "colour"',
      'option postgres must start with postgres:// or postgresql://; got mysql://…',
      'a Redis URL must start with',
      'option schema is not a valid name',
      'option lease must be a duration from 100ms to 1h',
      'option maxResultBytes must be',
      'properties: "GPU" is not a valid key',
      'at least one handler',
      'logger must be a pino logger',
    ])
      expect(message).toContain(told)
    expect(thrown(() => createRelay({ fanoutWidth: -1, laneWindow: 1 })).message).toMatch(
      /^2 settings are wrong:\n.*option fanoutWidth.*\n.*option laneWindow/,
    )
  })

  it('[C9] keep the code of a single problem', () => {
    expect(thrown(() => createWorker({ handlers, properties: { GPU: 'x' } }))).toMatchObject({
      code: 'CONSTRAINT_INVALID',
    })
  })
})

describe('the guide', () => {
  const rows = (section: Section) =>
    entriesOf(section).map(([key, { type, fallback, unset, env, about }]) => {
      const shown = fallback === undefined ? (unset ?? '') : `\`${type.show(fallback)}\``
      const name = section === 'shared' ? key : `${section}.${key}`
      return `| \`${name}\` | \`--${toFlag(key)}\` | \`${env}\` | ${shown} | ${about.replaceAll('|', '\\|')} |`
    })

  it('has the table of settings, to the letter', () => {
    const expected = (['shared', 'worker', 'relay'] as const).flatMap(rows)
    const lines = readFileSync('docs/guide.md', 'utf8').split('\n')
    const from = lines.indexOf('| setting | flag | environment | default | |')
    expect(lines.slice(from + 2, from + 2 + expected.length + 1)).toEqual([...expected, ''])
  })
})
