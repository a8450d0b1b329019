import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Store, startPostgres } from '../../src/dev/index.ts'
import {
  createProducer,
  createRelay,
  createWorker,
  defineTask,
  doctor,
  type GroupBuilder,
  type JobRef,
  LongshoreError,
  migrate,
  newJobId,
  setQueue,
} from '../../src/index.ts'
import { auditAtRest } from '../support/at-rest.ts'
import { rowsAt, type TestDatabase } from '../support/database.ts'
import { createJournal, type Journal } from '../support/journal.ts'
import { counter } from '../support/signals.ts'

let postgres: Store
let database: { rows: TestDatabase['rows'] }
let journal: Journal
beforeAll(async () => {
  postgres = await startPostgres({ own: true })
  await migrate({ postgres: postgres.url })
  database = { rows: rowsAt(postgres.url) }
  journal = createJournal(database)
  await journal.install()
})
afterAll(() => postgres.stop())

describe('Postgres shut down at once, and started again', () => {
  it('[S10] [X4] loses no acknowledged job: producer and worker come back by themselves', async () => {
    const task = defineTask({ name: 'steady' })
    const producer = createProducer({ postgres: postgres.url })
    const acknowledged: JobRef[] = []
    const done = counter()
    const worker = createWorker({ postgres: postgres.url, handlers: [task.handle(() => done.add())] })
    await worker.start()

    let mustStop = false
    const produce = async () => {
      while (!mustStop) {
        // A producer gives up after some seconds; then the caller decides. Only what resolved counts.
        const ref = await producer.enqueue(task, acknowledged.length).catch(() => undefined)
        if (ref) acknowledged.push(ref)
      }
    }
    const producing = [produce(), produce(), produce()]
    await done.reached(50)
    await postgres.kill()
    await postgres.restart()
    const before = acknowledged.length
    while (acknowledged.length < before + 50)
      await producer.enqueue(task, 'more').then(ref => acknowledged.push(ref))
    mustStop = true
    await Promise.all(producing)

    for (const ref of acknowledged) {
      expect(await producer.waitFor(ref, { timeout: '20s' })).toMatchObject({ state: 'succeeded' })
    }
    await auditAtRest(database, journal, undefined)
    await worker.stop()
    await producer.close()
  }, 60_000)

  it('[S3] [S10] in the middle of graphs: each of them is run to its end, in order', async () => {
    const task = defineTask<number>({ name: 'part' })
    const producer = createProducer({ postgres: postgres.url })
    const done = counter()
    const worker = createWorker({ postgres: postgres.url, handlers: [task.handle(() => done.add())] })
    const groups = []
    for (let n = 0; n < 20; n++) {
      const group = producer.group()
      const top = group.add(task, 0)
      const middle = Array.from({ length: 20 }, (_, at) =>
        group.add(task, at, { after: top, workflow: `w${at % 2}` }),
      )
      group.add(task, 0, { after: middle })
      await group.submit()
      groups.push(group)
    }
    await worker.start()
    await done.reached(100)
    await postgres.kill()
    await postgres.restart()
    for (const group of groups) {
      const ended = await producer.waitForGroup(group, { timeout: '30s' })
      expect(ended).toMatchObject({ state: 'succeeded', counts: { succeeded: 22 } })
    }
    await auditAtRest(database, journal, undefined)
    await worker.stop()
    await producer.close()
  }, 60_000)

  it('[X29] is STORE_UNAVAILABLE to every call, with the cause; inside your own transaction your own error', async () => {
    const task = defineTask<number>({ name: 'away' })
    const handlers = [task.handle(() => 1)]
    const at = { postgres: postgres.url }
    const producer = createProducer({ ...at, patience: 200 })
    const fresh = createProducer({ ...at, patience: 0 })
    const patient = createProducer({ ...at, patience: '1m' })
    const worker = createWorker({ ...at, redis: '', handlers })
    await worker.start()
    const ref = await producer.enqueue(task, 1, { delay: '1h' })
    await producer.enqueue(task, 1, { delay: '1h', workflow: 'w' })
    await patient.enqueue(task, 1, { delay: '1h' })
    const group = producer.group()
    group.add(task, 1, { delay: '1h' })
    await group.submit()
    const tx = new pg.Client(postgres.url)
    tx.on('error', () => undefined)
    await tx.connect()
    await tx.query('begin')
    await expect(producer.waitFor(ref, { timeout: 1 })).rejects.toMatchObject({ code: 'WAIT_TIMEOUT' })
    const waits = producer.waitFor(ref, { timeout: 1000 }) // it listens by now
    const late = expect(waits).rejects.toMatchObject({ code: 'WAIT_TIMEOUT', cause: expect.any(Error) })
    await postgres.kill()

    const submitted = (builder: GroupBuilder) => {
      builder.add(task, 1)
      return builder.submit()
    }
    const calls: Record<string, () => Promise<unknown>> = {
      'enqueue, the first of its producer': () => fresh.enqueue(task, 1),
      enqueue: () => producer.enqueue(task, 1),
      'enqueue with an id': () => producer.enqueue(task, 1, { id: newJobId() }),
      'enqueue into a workflow': () => producer.enqueue(task, 1, { workflow: 'w' }),
      'enqueue into a new queue': () => producer.enqueue(task, 1, { queue: 'new' }),
      enqueueMany: () => producer.enqueueMany(task, [1, 2]),
      'a group': () => submitted(producer.group()),
      'groups together': () => Promise.all([1, 2, 3].map(() => submitted(producer.group()))),
      addToGroup: () => submitted(producer.addToGroup(group)),
      get: () => producer.get(ref),
      explain: () => producer.explain(ref),
      waitFor: () => fresh.waitFor(ref),
      waitForGroup: () => fresh.waitForGroup(group),
      watchGroups: () => fresh.watchGroups(() => undefined),
      followLogs: () => fresh.followLogs(ref)[Symbol.asyncIterator]().next(),
      getLogs: () => producer.getLogs(ref),
      getProgress: () => producer.getProgress(ref),
      getGroup: () => producer.getGroup(group),
      cancel: () => producer.cancel(ref),
      cancelGroup: () => producer.cancelGroup(group),
      change: () => producer.change(ref, { priority: 1 }),
      resumeWorkflow: () => producer.resumeWorkflow('w'),
      'worker.start': () => createWorker({ ...at, redis: '', handlers }).start(),
      'worker.drain': () => worker.drain(),
      'relay.start': () => createRelay({ ...at, redis: '' }).start(),
      migrate: () => migrate(at),
      doctor: () => doctor(at),
      setQueue: () => setQueue({ ...at, name: 'default', scheduleMode: 'balanced' }),
    }
    await Promise.all(
      Object.entries(calls).map(async ([name, call]) => {
        const error = await call().then(
          () => undefined,
          thrown => thrown,
        )
        expect(error, name).toBeInstanceOf(LongshoreError)
        expect(error, name).toMatchObject({
          code: 'STORE_UNAVAILABLE',
          message: expect.stringMatching(
            /^Postgres cannot be used: .+\. Start it, wait until it is back, or/,
          ),
          cause: expect.any(Error),
        })
        expect(error.cause, name).not.toBeInstanceOf(LongshoreError)
      }),
    )
    await late
    const own = await producer.enqueue(task, 1, { tx }).catch(error => error)
    expect(own).toBeInstanceOf(Error)
    expect(own).not.toBeInstanceOf(LongshoreError)

    const [first, ...others] = [patient.enqueue(task, 2), patient.enqueueMany(task, [3, 4]), patient.get(ref)]
    await postgres.restart()
    expect(await first).toMatchObject({ isNew: true })
    expect(await Promise.all(others)).toMatchObject([[{}, {}], { id: ref.id }])
    await Promise.all([producer, fresh, patient].map(each => each.close()))
    await worker.stop()
  }, 60_000)
})
