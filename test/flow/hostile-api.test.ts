/** Every argument of every verb, given what no honest caller passes: an error of ours says what is wrong, or it works. */
import { inspect } from 'node:util'
import { afterAll, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  audit,
  createProducer,
  createRelay,
  createWorker,
  defineTask,
  doctor,
  type JobRef,
  migrate,
  newJobId,
  type Producer,
  readMaxQueues,
  readPropertyKeys,
  readQueues,
  readWatchdog,
  setMaxQueues,
  setPropertyKeys,
  setQueue,
  setWatchdog,
  type Task,
} from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { expectOwnError, HOSTILE } from '../support/hostile.ts'
import { counter, eventually } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask<unknown>({ name: 'task', concurrencyPerKey: 5 })
const probe = defineTask<number>({ name: 'probe' })

/** Whatever a caller without types may pass. */
// biome-ignore lint/suspicious/noExplicitAny: that is the point
type Any = any

/** By name: what is done with the value. */
type Calls = Record<string, (value: Any) => unknown>

const AT_ONCE = 40

/** Each call with each value; answers how many were refused. */
async function callAll(calls: Calls, between: () => Promise<unknown> = async () => undefined) {
  let refused = 0
  const one = async (name: string, call: (value: Any) => unknown, what: string, make: () => unknown) => {
    try {
      await call(make())
    } catch (error) {
      refused++
      expectOwnError(error, `${name} with ${what}`)
    }
  }
  const todo = Object.entries(calls).flatMap(([name, call]) =>
    Object.entries(HOSTILE).map(
      ([what, make]) =>
        () =>
          one(name, call, what, make),
    ),
  )
  for (let at = 0; at < todo.length; at += AT_ONCE)
    await Promise.all([between(), ...todo.slice(at, at + AT_ONCE).map(each => each())])
  expect(Object.keys(Object.prototype)).toEqual([])
  return { refused, called: todo.length }
}

const options = (names: readonly string[], call: (options: Any) => unknown, prefix = ''): Calls =>
  Object.fromEntries(names.map(name => [`${prefix}${name}`, value => call({ [name]: value })]))

const JOB_OPTIONS = [
  'priority',
  'delay',
  'runAt',
  'maxAttempts',
  'tag',
  'queue',
  'constraints',
  'concurrencyKey',
  'workflow',
  'onWorkflowFailure',
  'no such option',
]

describe('the verbs of a producer', () => {
  let producer: Producer
  let any: Any
  let ref: JobRef
  beforeEach(async () => {
    producer = deployment.producer()
    any = producer
    ref = await producer.enqueue(task, 1, { delay: '1h' })
  })

  it('refuse or do what they are asked, and their neighbours go on', async () => {
    const ran = counter()
    await deployment.worker({ handlers: [probe.handle(() => ran.add())] })
    let sent = 0
    /** In the same batch as whatever else is under way. */
    const neighbour = async () => {
      sent += 2
      await Promise.all([producer.enqueue(probe, sent), producer.enqueue(probe, sent, { id: newJobId() })])
    }
    const wait = { timeout: 1 }
    const grouped = (use: (group: Any) => unknown) => {
      const group = any.group()
      use(group)
      return group.submit()
    }
    const { refused, called } = await callAll(
      {
        'enqueue: task': value => any.enqueue(value, 1),
        'enqueue: a copy of a task': value => any.enqueue({ ...task, queue: value }, 1),
        'enqueue: options': value => any.enqueue(task, 1, value),
        ...options([...JOB_OPTIONS, 'id', 'tx'], given => any.enqueue(task, 1, given), 'enqueue: '),
        'enqueueMany: payloads': value => any.enqueueMany(task, value),
        ...options(
          [...JOB_OPTIONS, 'tx', 'each'],
          given => any.enqueueMany(task, [1], given),
          'enqueueMany: ',
        ),
        'enqueueMany: each': value => any.enqueueMany(task, [1], { each: () => value }),
        ...options(
          [...JOB_OPTIONS, 'id'],
          given => any.enqueueMany(task, [1], { each: () => given }),
          'enqueueMany: each: ',
        ),
        'get: job': value => any.get(value),
        'get: id': value => any.get({ id: value }),
        'explain: job': value => any.explain(value),
        'waitFor: job': value => any.waitFor(value, wait),
        ...options(['timeout', 'signal'], given => any.waitFor(ref, { ...wait, ...given }), 'waitFor: '),
        'getLogs: job': value => any.getLogs(value),
        ...options(['after', 'limit'], given => any.getLogs(ref, given), 'getLogs: '),
        'followLogs: job': value => any.followLogs(value).next(),
        'getProgress: job': value => any.getProgress(value),
        'cancel: job': value => any.cancel(value),
        'cancel: tx': value => any.cancel(newJobId(), { tx: value }),
        'change: job': value => any.change(value, { priority: 1 }),
        'change: options': value => any.change(ref, value),
        ...options([...JOB_OPTIONS, 'tx'], given => any.change(ref, given), 'change: '),
        ...options(['name', 'id'], given => any.group(given).add(task, 1), 'group: '),
        'group: task': value => grouped(group => group.add(value, 1)),
        ...options(
          [...JOB_OPTIONS, 'name', 'after'],
          given => grouped(group => group.add(task, 1, given)),
          'add: ',
        ),
        'add: after one': value => grouped(group => group.add(task, 1).after(value)),
        'add: onFailure': value =>
          grouped(group => group.add(task, 1, { after: { job: group.add(task, 1), onFailure: value } })),
        'submit: tx': value => any.group().submit({ tx: value }),
        addToGroup: value => any.addToGroup(value).add(task, 1),
        getGroup: value => any.getGroup(value),
        waitForGroup: value => any.waitForGroup(value, wait),
        cancelGroup: value => any.cancelGroup(value),
        resumeWorkflow: value => any.resumeWorkflow(value),
        watchGroups: async value => (await any.watchGroups(value))(),
      },
      neighbour,
    )
    expect(refused).toBeGreaterThan(0.8 * called)
    await ran.reached(sent)
    expect(ran.count).toBe(sent)
    // What was taken of it has been stored in a form that can be read again.
    const jobs = await database.rows<{ id: string }>('select id from longshore.jobs')
    for (const { id } of jobs.slice(0, 50)) expect(await producer.get(id)).toBeDefined()
  })

  it('say that options cannot be read where looking at them throws', async () => {
    const hostile = new Proxy(
      {},
      {
        ownKeys: () => {
          throw new Error('not for you')
        },
      },
    )
    for (const call of [
      () => any.enqueue(task, 1, hostile),
      () => any.enqueueMany(task, [1], hostile),
      () => any.change(ref, hostile),
    ]) {
      const unread = { code: 'JOB_INVALID', message: expect.stringContaining('not for you') }
      await expect(call()).rejects.toMatchObject(unread)
    }
  })

  it('refuse an id that is that of a job of another task: nothing would ever run for it', async () => {
    const other = { code: 'JOB_INVALID', message: expect.stringContaining('is that of a job of task task') }
    const { id } = await producer.enqueue(task, 1)
    await expect(producer.enqueue(probe, 1, { id })).rejects.toMatchObject(other)
    expect(await producer.enqueue(task, 2, { id })).toMatchObject({ isNew: false })
    await producer.cancel(id)
    await expect(producer.enqueue(probe, 1, { id })).rejects.toMatchObject(other)
    const tx = await database.connect()
    await tx.query('begin')
    await expect(producer.enqueue(probe, 1, { id, tx })).rejects.toMatchObject(other)
    const kept = await producer.enqueue(probe, 1, { tx })
    await tx.query('commit')
    expect(await producer.get(kept)).toMatchObject({ task: 'probe' })
    await expect(database.rows("select longshore.enqueue('probe', '1', $1)", [{ id }])).rejects.toMatchObject(
      { message: expect.stringContaining('is that of a job of task task, so no job') },
    )
  })

  it('[X29] show a value of 10 MB in a short message, in SQL as well', async () => {
    const huge = 'k'.repeat(10_000_000)
    const strict = defineTask({ name: 'strict', payload: z.strictObject({}), concurrencyPerKey: 1 })
    const calls: Calls = {
      'a payload': value => any.enqueue(strict, { [value]: 1 }),
      'a payload that cannot be stored': value => any.enqueue(task, { [value]: Number.NaN }),
      'an option': value => any.enqueue(strict, {}, { [value]: 1 }),
      'the name of a task': value => defineTask({ name: value }),
      'an id': value => any.get(value),
      'constraint keys': value => any.enqueue(strict, {}, { constraints: { [value]: 'x' } }),
      'property keys': () =>
        setPropertyKeys({ postgres: database.url, keys: Array.from({ length: 1e5 }, (_, n) => `key_${n}`) }),
      ...options(['queue', 'tag', 'concurrencyKey', 'workflow', 'runAt', 'delay'], given =>
        any.enqueue(strict, {}, given),
      ),
    }
    for (const [name, call] of Object.entries(calls)) {
      const error = await Promise.resolve()
        .then(() => call(huge))
        .then(
          () => undefined,
          thrown => thrown,
        )
      expectOwnError(error, name)
    }
    const inSql = [
      'longshore.enqueue($1)',
      `longshore.enqueue('x', '{}', jsonb_build_object($1::text, 1))`,
      ...['queue', 'tag', 'workflow', 'runAt', 'priority', 'id', 'constraints'].map(
        key => `longshore.enqueue('x', '{}', jsonb_build_object('${key}', $1::text))`,
      ),
      `longshore.enqueue('x', '{}', jsonb_build_object('constraints', jsonb_build_object($1::text, '1')))`,
      `longshore.set_limits($1, 0, 0)`,
      `longshore.settle_unsuccessful(1, jsonb_build_array(jsonb_build_object('outcome', $1::text, 'id', gen_random_uuid(), 'token', 1)))`,
    ]
    for (const call of inSql) {
      const error = await database
        .rows(`select ${call}`, [huge.slice(0, 300_000)])
        .catch((thrown: Error) => thrown)
      if (error instanceof Error) expect(error.message.length, call).toBeLessThan(1000)
    }
  })

  it('[X29] refuse wrong labels and times of a job as JOB_INVALID', async () => {
    const bad = {
      queue: '',
      tag: 'a\u0000',
      concurrencyKey: 5,
      workflow: '',
      delay: 'soon',
      runAt: 5,
      priority: -1,
    }
    for (const [option, value] of Object.entries(bad)) {
      const wrong = { code: 'JOB_INVALID', message: expect.stringMatching(`^${option} must be`) }
      await expect(any.enqueue(task, 1, { [option]: value })).rejects.toMatchObject(wrong)
      await expect(any.enqueueMany(task, [1], { [option]: value })).rejects.toMatchObject(wrong)
      expect(() => any.group().add(task, 1, { [option]: value })).toThrow(expect.objectContaining(wrong))
    }
    expect(() => defineTask({ name: 'x', timeout: 'soon' as never })).toThrow(
      expect.objectContaining({ code: 'TASK_INVALID' }),
    )
  })

  it('[X29] refuse a second task of a name that says something else, and take a copy or the same again', async () => {
    const schema = () => z.object({ to: z.string() })
    const mail = defineTask({ name: 'mail', payload: schema(), retry: { maxAttempts: 5 } })
    const again = defineTask({ name: 'mail', payload: schema(), retry: { maxAttempts: 5 } })
    await producer.enqueue(mail, { to: 'a' })
    await producer.enqueue(again, { to: 'a' })
    await producer.enqueueMany({ ...mail, queue: 'other', maxAttempts: 1 }, [{ to: 'a' }])
    const others: [string, Task][] = [
      ['maxAttempts is 5 in one and 3 in the other', defineTask({ name: 'mail', payload: schema() })],
      [
        'queue is default in one and q in the other',
        defineTask({ name: 'mail', queue: 'q', retry: { maxAttempts: 5 } }),
      ],
      [
        'their payload schemas differ',
        defineTask({ name: 'mail', payload: z.object({ to: z.number() }), retry: { maxAttempts: 5 } }),
      ],
      ['their payload schemas differ', defineTask({ name: 'mail', retry: { maxAttempts: 5 } })],
    ]
    for (const [differs, other] of others) {
      const refused = {
        code: 'TASK_INVALID',
        message: expect.stringMatching(`^two tasks are called mail, and ${differs}: define it once`),
      }
      await expect(producer.enqueue(other, { to: 1 })).rejects.toMatchObject(refused)
      await expect(producer.enqueueMany(other, [])).rejects.toMatchObject(refused)
      expect(() => producer.group().add(other, { to: 1 })).toThrow(expect.objectContaining(refused))
      const tasks = [mail, other]
      expect(() => createProducer({ postgres: database.url, tasks })).toThrow(
        expect.objectContaining(refused),
      )
      // Another producer may be that of another deployment.
      const elsewhere = createProducer({ postgres: database.url, tasks: [other] })
      await elsewhere.close()
      const handlers = tasks.map(each => each.handle(() => undefined))
      expect(() => createWorker({ postgres: database.url, handlers })).toThrow('two handlers for task mail')
    }
  })

  it('go by the options as they were at the call', async () => {
    const tx = await database.connect()
    await tx.query('begin')
    const given: Any = { id: newJobId(), tx }
    const under = producer.enqueue(task, 1, given)
    const { id } = given
    given.id = undefined
    given.tx = undefined
    expect(await under).toMatchObject({ id, isNew: true })
    await tx.query('rollback')
    expect(await producer.get(id)).toBeUndefined()
  })

  it('tell a job and a group with the same id apart', async () => {
    const id = newJobId()
    const group = producer.group({ id })
    group.add(probe, 1)
    await group.submit()
    await producer.enqueue(task, 2, { id })
    const [job, ended] = [producer.waitFor(id), producer.waitForGroup(id)]
    await deployment.worker({ handlers: [task.handle(() => 'done'), probe.handle(() => undefined)] })
    expect(await job).toMatchObject({ state: 'succeeded', result: 'done' })
    expect(await ended).toMatchObject({ state: 'succeeded', counts: { succeeded: 1 } })
  })

  it('go on when a function that watches groups throws', async () => {
    const told = counter()
    await producer.watchGroups(() => {
      told.add()
      throw new Error('whoops')
    })
    await deployment.worker({ handlers: [probe.handle(() => undefined)] })
    for (const n of [1, 2]) {
      const group = producer.group()
      group.add(probe, n)
      await producer.waitForGroup(await group.submit())
      await eventually(`event ${n} is told`, async () => told.count >= n)
    }
  })
})

describe('what is made at the start', () => {
  const made: Producer[] = []
  afterAll(() => Promise.all(made.map(producer => producer.close())))

  it('tasks, producers, workers and relays refuse every option that makes no sense', async () => {
    const where = { postgres: database.url }
    const handlers = [task.handle(() => undefined)]
    const schema = z.unknown()
    const { refused, called } = await callAll({
      defineTask: value => defineTask(value),
      ...options(
        ['payload', 'result', 'queue', 'tag', 'retry', 'concurrency', 'concurrencyPerKey', 'timeout', 'x'],
        given => defineTask({ name: 'x', ...given }),
        'defineTask: ',
      ),
      ...options(
        ['maxAttempts', 'backoff', 'maxRescues', 'x'],
        retry => defineTask({ name: 'x', payload: schema, retry }),
        'retry: ',
      ),
      ...options(
        ['type', 'delay', 'max', 'jitter', 'x'],
        given => defineTask({ name: 'x', retry: { backoff: { type: 'fixed', ...given } } }),
        'backoff: ',
      ),
      handle: value => task.handle(value),
      ...options(
        ['isolate', 'module', 'x'],
        given => task.handle({ isolate: 'thread', module: 'file:///x.js', ...given }),
        'handle: ',
      ),
      createProducer: value => made.push(createProducer(value)),
      ...options(
        ['postgres', 'redis', 'schema', 'tasks', 'connections', 'maxPayloadBytes', 'logger', 'x'],
        given => made.push(createProducer({ ...where, ...given })),
        'createProducer: ',
      ),
      createWorker: value => createWorker(value),
      ...options(
        [
          ...[
            'postgres',
            'redis',
            'schema',
            'handlers',
            'tags',
            'queues',
            'properties',
            'name',
            'lease',
            'x',
          ],
          ...['maxConcurrentTasks', 'claimBatchSize', 'pollInterval', 'maxThreads', 'memoryThreshold'],
          ...['latencyThreshold', 'abortGrace', 'stall', 'threadMemoryMb', 'maxResultBytes', 'maxLogLines'],
          ...['metricsPrefix', 'logger'],
        ],
        given => createWorker({ ...where, handlers, ...given }),
        'createWorker: ',
      ),
      'createWorker: a handler': value => createWorker({ ...where, handlers: [value] }),
      'createWorker: a task': value =>
        createWorker({ ...where, handlers: [{ task: value, run: () => undefined }] }),
      createRelay: value => createRelay(value),
      ...options(
        [
          ...['postgres', 'redis', 'schema', 'scheduleMode', 'balanceStrategy', 'fanoutWidth', 'queueDepth'],
          ...['laneWindow', 'metricsPrefix', 'logger', 'x'],
        ],
        given => createRelay({ ...where, ...given }),
        'createRelay: ',
      ),
    })
    expect(refused).toBeGreaterThan(0.8 * called)
  })

  it.each([
    ['user:s3cret/@host/db', 'either'],
    ['user:s3cret#x@host:99999999/db', 'either'],
    // The driver of Postgres takes these as they are.
    ['user:s3cret%@host/db', 'redis'],
    ['user:s3cret@ho st/db', 'redis'],
  ])('[X29] URLs that cannot be read are CONFIG_INVALID, and never shown: %s', async (rest, which) => {
    const handlers = [task.handle(() => undefined)]
    const [postgres, redis] = [`postgres://${rest}`, `redis://${rest}`]
    const fine = { postgres: database.url }
    const calls: Record<string, () => unknown> = {
      createProducer: () => createProducer({ postgres }),
      'createProducer, settings': () => createProducer({ postgres: { connectionString: postgres } }),
      'createProducer, redis': () => createProducer({ ...fine, redis }),
      'worker.start': () => createWorker({ postgres, redis: '', handlers }).start(),
      'createWorker, redis': () => createWorker({ ...fine, redis, handlers }),
      'relay.start': () => createRelay({ postgres, redis: '' }).start(),
      'createRelay, redis': () => createRelay({ ...fine, redis }),
      migrate: () => migrate({ postgres }),
      doctor: () => doctor({ postgres }),
    }
    for (const [name, call] of Object.entries(calls)) {
      if (which === 'redis' && !name.endsWith('redis')) continue
      const about = `${name} with ${rest}`
      const error = await Promise.resolve()
        .then(call)
        .then(
          () => undefined,
          thrown => thrown,
        )
      expectOwnError(error, about)
      expect(error.code, about).toBe('CONFIG_INVALID')
      expect(inspect(error, { depth: 9 }), about).not.toContain('s3cret')
      expect(error.message, about).toContain('%40 %3A %2F')
    }
  })

  it('settings of the deployment too', async () => {
    const where = { postgres: database.url }
    const any: Any = {
      ...{ audit, doctor, migrate, readMaxQueues, readPropertyKeys, readQueues, readWatchdog },
      ...{ setMaxQueues, setPropertyKeys, setQueue, setWatchdog },
    }
    const each = (name: string, known: readonly string[], needed = {}): Calls => ({
      [name]: value => any[name](value),
      ...options(
        ['schema', 'postgres', 'x', ...known],
        given => any[name]({ ...where, ...needed, ...given }),
        `${name}: `,
      ),
    })
    await callAll({
      ...each('setQueue', ['name', 'scheduleMode', 'balanceStrategy', 'fanoutWidth'], { name: 'q' }),
      ...each('setWatchdog', ['after', 'cancel']),
      ...each('setMaxQueues', ['maxQueues']),
      ...each('readMaxQueues', []),
      ...each('setPropertyKeys', ['keys'], { keys: [] }),
      'setPropertyKeys: a key': value => any.setPropertyKeys({ ...where, keys: [value] }),
      ...each('readQueues', []),
      ...each('readWatchdog', []),
      ...each('readPropertyKeys', []),
      ...each('audit', ['redis', 'grace']),
      ...each('migrate', ['patience']),
      ...each('doctor', ['redis', 'grace', 'pause', 'pageSize', 'looks', 'maxDeadRows', 'maxTransactionAge']),
    })
    await setPropertyKeys({ ...where, keys: ['gpu', 'mem', 'region'] })
    await setWatchdog({ ...where, after: '10m', cancel: false })
    await setMaxQueues({ ...where, maxQueues: 1000 })
  })
})
