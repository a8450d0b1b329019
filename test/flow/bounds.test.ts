import { describe, expect, it } from 'vitest'
import { createProducer, createWorker, defineTask, LongshoreError, newJobId } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask({ name: 'task' })
const handlers = [task.handle(() => undefined)]

/** Whatever a caller without types may pass. */
// biome-ignore lint/suspicious/noExplicitAny: that is the point
const any = (value: unknown) => value as any

const asked = (sql: string, values: unknown[]) =>
  database.rows(sql, values).then(
    () => 'taken',
    error => `${error.code} ${error.message} ${error.hint ?? ''}`,
  )

describe('plain SQL', () => {
  it.each([
    ['{"runAt": "infinity"}', 'runAt must lie between 1970 and 2109, got "infinity"'],
    ['{"runAt": "-infinity"}', 'runAt must lie between 1970 and 2109'],
    ['{"runAt": "1969-12-31T00:00:00Z"}', 'runAt must lie between 1970 and 2109'],
    ['{"runAt": "2200-01-01"}', 'runAt must lie between 1970 and 2109'],
    ['{"runAt": "99999999-01-01"}', 'runAt must lie between 1970 and 2109'],
    ['{"runAt": "soon"}', 'runAt must lie between 1970 and 2109, got "soon"'],
    ['{"runAt": 5}', 'runAt must lie between 1970 and 2109, got 5'],
    ['{"runAt": ["2030-01-01"]}', 'runAt must lie between 1970 and 2109'],
    ['{"priority": -1}', 'priority must be a whole number from 0 to 2047, got -1'],
    ['{"priority": 1e300}', 'priority must be a whole number'],
    ['{"priority": 1.5}', 'priority must be a whole number'],
    ['{"priority": "NaN"}', 'priority must be a whole number from 0 to 2047, got "NaN"'],
    ['{"priority": "high"}', 'priority must be a whole number from 0 to 2047, got "high"'],
    ['{"priority": true}', 'priority must be a whole number'],
    ['{"priority": [[1]]}', 'priority must be a whole number'],
    ['{"maxAttempts": 0}', 'maxAttempts must be a whole number from 1 to 1000'],
    ['{"maxAttempts": {}}', 'maxAttempts must be a whole number from 1 to 1000'],
    ['{"delayMs": -1}', 'delayMs must be a number from 0 to 315360000000'],
    ['{"delayMs": "1h"}', 'delayMs must be a number from 0 to 315360000000, got "1h"'],
    ['{"delayMs": 1, "runAt": "2030-01-01"}', 'give delayMs or runAt, not both'],
    ['{"queue": ""}', 'queue must be a text of 1 to 100 characters'],
    ['{"queue": 5}', 'queue must be a text of 1 to 100 characters without control characters, got 5'],
    [`{"queue": "${'q'.repeat(101)}"}`, 'queue must be a text of 1 to 100 characters'],
    ['{"tag": ["a"]}', 'tag must be a text'],
    ['{"tag": "a\\nb"}', 'tag must be a text of 1 to 100 characters without control characters'],
    ['{"id": "mine"}', 'a job id is a UUID, got "mine"'],
    ['{"id": 7}', 'id must be a text'],
    ['{"constraints": [["gpu"]]}', 'constraints must be an object'],
    ['[1]', 'options must be a JSON object, got [1] Options are id'],
    ['"now"', 'options must be a JSON object'],
    ['{"runat": 1}', 'unknown option "runat"'],
  ])('enqueue refuses %s', async (options, message) => {
    const answer = await asked("select longshore.enqueue('task', '{}', $1)", [options])
    expect(answer).toMatch(/^(22023|LS001) longshore: /)
    expect(answer).toContain(message)
    expect(await database.rows('select id from longshore.jobs')).toEqual([])
  })

  it.each([[''], ['x'.repeat(201)], ['a\u0007b'], [null]])('enqueue refuses a task named %j', async name => {
    expect(await asked('select longshore.enqueue($1)', [name])).toMatch('longshore: a task name has 1 to 200')
  })

  it('enqueue takes what is at the edge, and null for what is not given', async () => {
    for (const options of [
      null,
      '{"priority": null, "runAt": null, "queue": null, "id": null, "constraints": null, "delayMs": null}',
      '{"runAt": "1970-01-01T00:00:00Z"}',
      '{"runAt": "2109-05-14T23:59:59Z", "priority": 2047, "maxAttempts": 1000}',
      '{"delayMs": 315360000000}',
      '{"delayMs": 0.5}',
    ]) {
      expect(await asked("select longshore.enqueue('task', '{}', $1)", [options])).toBe('taken')
    }
  })

  it.each([
    ['{"priority": 2048}', 'priority must be a whole number from 0 to 2047, got 2048'],
    ['{"priority": -5}', 'priority must be a whole number'],
    ['{"priority": "1"}', 'priority must be a whole number'],
    ['{"runAt": 4398046511104}', 'runAt must be a number from 0 to 4398046511103'],
    ['{"runAt": "infinity"}', 'runAt must be a number'],
    ['{"delayMs": -1}', 'delayMs must be a number'],
    ['{"delayMs": 5, "runAt": 5}', 'give delayMs or runAt, not both'],
    ['{"constraintTag": 5}', 'constraintTag must be a text'],
    ['{"constraintTag": "garbage"}', 'property key "rbage" is not declared'],
    ['{"state": "running"}', 'unknown option "state"'],
    ['[]', 'options must be a JSON object'],
  ])('change refuses %s', async (change, message) => {
    const ref = await deployment.producer().enqueue(task, 1)
    const before = await database.rows('select * from longshore.jobs')
    const answer = await asked('select longshore.change($1, $2)', [ref.id, change])
    expect(answer).toMatch(/^(22023|LS001) longshore: /)
    expect(answer).toContain(message)
    expect(await database.rows('select * from longshore.jobs')).toEqual(before)
  })

  it('cancel takes up to 10,000 ids, and passes over nulls', async () => {
    const ids = Array.from({ length: 10_001 }, () => newJobId())
    const cancel = 'select * from longshore.cancel($1::uuid[])'
    expect(await asked(cancel, [ids])).toContain('10001 jobs are too many to cancel at once')
    expect(await database.rows(cancel, [[null, ids[0]]])).toEqual([{ id: ids[0], answer: 'unknown' }])
    expect(await database.rows(cancel, [null])).toEqual([])
  })

  it('cancel and change say what to do when somebody holds the job', async () => {
    const ref = await deployment.producer().enqueue(task, 1)
    const other = await database.connect()
    await other.query('begin')
    await other.query('select * from longshore.cancel($1)', [[ref.id]])
    const held = `55P03 longshore: job ${ref.id} is locked by another transaction for longer than a second`
    expect(await asked('select * from longshore.cancel($1)', [[ref.id]])).toContain(held)
    expect(await asked("select longshore.change($1, '{}')", [ref.id])).toContain(held)
    await other.query('rollback')
  })

  it('the tables refuse what would break the order, whoever writes it', async () => {
    const shape = { queue: 'q', task: 't', tag: 'g', constraintTag: 'c:', maxAttempts: 1, priority: 0 }
    for (const wrong of [{ priority: 2048 }, { priority: -1 }, { runAt: 2 ** 42 }, { runAt: -1 }]) {
      expect(
        await asked("select longshore.enqueue_jobs($1, $2, null, '1', false)", [
          JSON.stringify([{ ...shape, ...wrong }]),
          [newJobId()],
        ]),
      ).toContain('priority must be from 0 to 2047, and the run time between 1970 and 2109')
    }
    const insert = `insert into longshore.jobs (id, score, lane, state, max_attempts, payload)
      values (gen_random_uuid(), $1, 1, 'ready', 1, '1')`
    expect(await asked(insert, [String(2n ** 53n)])).toContain('score_in_bounds')
    expect(await asked(insert, ['-1'])).toContain('score_in_bounds')
  })
})

describe('createWorker', () => {
  it.each([
    [{ handler: [] }, 'unknown option "handler"'],
    [{ concurrency: 5 }, 'unknown option "concurrency"; options are postgres'],
    [{ handlers: undefined }, 'at least one handler'],
    [{ handlers: 'all' }, 'at least one handler'],
    [{ handlers: [null] }, 'task.handle'],
    [{ tags: [] }, 'tags must be a list of 1 to 1000 items; got 0 items'],
    [{ tags: 'gpu' }, 'tags must be a list of 1 to 1000 items; got gpu'],
    [{ queues: Array(1001).fill('q') }, 'queues must be a list of 1 to 1000 items; got 1001 items'],
    [{ queues: [5] }, 'queue must be a text'],
    [{ abortGrace: '30d' }, 'abortGrace must be a duration from 0ms to 24d'],
    [{ abortGrace: -1 }, 'abortGrace must be'],
    [{ lease: Number.NaN }, 'lease must be'],
    [{ maxResultBytes: '1' }, 'maxResultBytes must be a whole number from 1'],
    [{ maxConcurrentTasks: 0 }, 'maxConcurrentTasks'],
    [{ logger: console }, 'logger must be a pino logger'],
    [{ postgres: 5 }, 'postgres must be a connection string or an object'],
  ])('refuses %o', (options, message) => {
    expect(() => createWorker(any({ postgres: database.urlOf('worker'), handlers, ...options }))).toThrow(
      message,
    )
  })

  it('refuses what is no object, and a deadline that no timer can hold', async () => {
    expect(() => createWorker(any(undefined))).toThrow('createWorker must be an object of options')
    const worker = createWorker({ postgres: database.urlOf('worker'), handlers })
    await expect(worker.stop({ deadline: '25d' })).rejects.toThrow('deadline must be at most')
    await expect(worker.stop(any({ timeout: 5 }))).rejects.toThrow('unknown option "timeout"')
    await worker.stop({ deadline: '24d' })
  })
})

describe('createProducer', () => {
  it.each([
    [{ task: [] }, 'unknown option "task"'],
    [{ connections: -1 }, 'connections must be a whole number from 1 to 1000; got -1'],
    [{ connections: Number.NaN }, 'connections must be'],
    [{ connections: 0 }, 'connections must be'],
    [{ maxPayloadBytes: 0 }, 'maxPayloadBytes must be'],
    [{ maxPayloadBytes: Number.POSITIVE_INFINITY }, 'maxPayloadBytes must be'],
  ])('refuses %o', (options, message) => {
    expect(() => createProducer(any({ postgres: database.urlOf('producer'), ...options }))).toThrow(message)
  })

  it('every verb refuses garbage with an error of its own', async () => {
    const producer = any(deployment.producer())
    const id = newJobId()
    for (const call of [
      () => producer.enqueue(undefined, 1),
      () => producer.enqueue({ name: 'task' }, 1),
      () => producer.enqueue(task, 1, null),
      () => producer.enqueue(task, 1, []),
      () => producer.enqueue(task, 1, { tx: 5 }),
      () => producer.enqueue(task, 1, { runAt: new Date(Number.NaN) }),
      () => producer.enqueue(task, 1, { runAt: '2030-01-01' }),
      () => producer.enqueue(task, 1, { delay: Number.POSITIVE_INFINITY }),
      () => producer.enqueue(task, 1, { priority: '5' }),
      () => producer.enqueue(task, 1, { tag: '' }),
      () => producer.enqueueMany(task, 5),
      () => producer.enqueueMany(task, undefined),
      () => producer.cancel(null),
      () => producer.cancel([id]),
      () => producer.cancel(id, { force: true }),
      () => producer.cancel(id, null),
      () => producer.change(id),
      () => producer.change(id, {}),
      () => producer.change(id, { state: 'ready' }),
      () => producer.change(id, { priority: null }),
      () => producer.get(undefined),
      () => producer.waitFor(id, { timeout: '30d' }),
      () => producer.waitFor(id, { timout: '3s' }),
      () => producer.waitFor(id, null),
    ]) {
      await expect(call(), String(call)).rejects.toBeInstanceOf(LongshoreError)
    }
  })
})
