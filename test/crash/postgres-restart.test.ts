import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Store, startPostgres } from '../../src/dev/index.ts'
import { createProducer, createWorker, defineTask, type JobRef, migrate } from '../../src/index.ts'
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
      expect(ended).toMatchObject({ state: 'complete', counts: { succeeded: 22 } })
    }
    await auditAtRest(database, journal, undefined)
    await worker.stop()
    await producer.close()
  }, 60_000)
})
