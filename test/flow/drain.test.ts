import { describe, expect, it } from 'vitest'
import { createWorker, defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually, gate } from '../support/signals.ts'
import { spawnCli } from '../support/spawn-cli.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask<number>({ name: 'drained' })

const idOf = async (name: string) =>
  (await database.rows<{ id: number }>('select id from longshore.workers where name = $1', [name]))[0]?.id

const statusOf = async (name: string) =>
  (
    await database.rows<{ state: string }>('select state from longshore.worker_status where name = $1', [
      name,
    ])
  )[0]?.state

/** A worker that notes who ran what; its handler waits for the gate. */
async function notingWorker(name: string, options: { lease?: number } = {}) {
  const ran: number[] = []
  const open = gate()
  const started = counter()
  const worker = await deployment.worker({
    name,
    ...options,
    handlers: [
      task.handle(async job => {
        started.add()
        await open.opened
        ran.push(job.payload)
      }),
    ],
  })
  return { worker, ran, open, started }
}

const run = async (...args: string[]) => {
  const cli = spawnCli([...args, '--database-url', database.url])
  const { code } = await cli.ended
  return { code, said: cli.said() }
}

describe('a drained worker', () => {
  it('[W16] must run', async () => {
    const worker = createWorker({
      postgres: database.urlOf('worker'),
      handlers: [task.handle(() => undefined)],
    })
    await expect(worker.drain()).rejects.toMatchObject({ code: 'WORKER_STOPPED' })
    await expect(worker.resume()).rejects.toMatchObject({ code: 'WORKER_STOPPED' })
  })

  it('[W16] claims nothing, ends what it runs, and claims again when it is resumed', async () => {
    const producer = deployment.producer()
    const { worker, ran, open, started } = await notingWorker('one')
    await producer.enqueue(task, 1)
    await started.reached(1)
    await worker.drain()
    expect(worker.isDrained).toBe(true)
    expect(await statusOf('one')).toBe('drained')
    const later = await producer.enqueueMany(task, [2, 3])
    expect((await producer.explain(later[0]?.id as string))?.reasons).toMatchObject([
      { kind: 'drained', workers: [{ name: 'one' }] },
    ])
    open.open()
    await eventually('the first has ended', async () => ran.length === 1)
    const other = await notingWorker('two')
    other.open.open()
    await eventually('another does the rest', async () => other.ran.length === 2)
    await other.worker.stop()
    expect(ran).toEqual([1])

    await worker.resume()
    expect(worker.isDrained).toBe(false)
    await producer.enqueue(task, 4)
    await eventually('it runs again', async () => ran.length === 2)
    expect(await statusOf('one')).toBe('live')
  })

  it('[W16] leaves jobs that are rung for to others', async () => {
    const producer = deployment.producer()
    const drained = await notingWorker('idle and drained')
    const other = await notingWorker('idle')
    drained.open.open()
    other.open.open()
    await drained.worker.drain()
    for (let n = 0; n < 20; n++) {
      await producer.waitFor(await producer.enqueue(task, n))
    }
    expect(other.ran).toHaveLength(20)
    expect(drained.ran).toEqual([])
  })

  it('[W16] is drained and resumed from outside by name or id, at once', async () => {
    const producer = deployment.producer()
    const { worker, ran, open } = await notingWorker('far')
    open.open()
    const id = await idOf('far')
    expect(await run('drain', 'far')).toMatchObject({
      code: 0,
      said: expect.stringContaining(`worker ${id} (far) takes no more jobs`),
    })
    await eventually('it knows', async () => worker.isDrained)
    const ref = await producer.enqueue(task, 1)
    expect(await run('drain', `${id}`, '--wait', '--json')).toMatchObject({
      code: 0,
      said: expect.stringContaining('"hasChanged":false'),
    })
    expect(ran).toEqual([])
    expect((await run('resume', `${id}`)).code).toBe(0)
    await producer.waitFor(ref)
    expect(ran).toEqual([1])
    expect(await run('drain', 'nobody')).toMatchObject({
      code: 2,
      said: expect.stringContaining('no live worker has the id or name nobody'),
    })
  })

  it('[W16] learns it with the next beat when it was not told', async () => {
    const { worker } = await notingWorker('deaf', { lease: 300 })
    await database.rows('update longshore.workers set drained_at = now()')
    await eventually('it knows', async () => worker.isDrained)
    await database.rows('update longshore.workers set drained_at = null')
    await eventually('it knows that too', async () => !worker.isDrained)
  })

  it.each([
    { what: 'its lease was lost', lose: 'update longshore.workers set dead_at = clock_timestamp()' },
    {
      what: 'its row is gone before it is told',
      lose: `with gone as (delete from longshore.workers returning id)
        select pg_notify('longshore.worker_' || id, 'drain') from gone`,
    },
  ])('[W16] stays so when $what, and it begins a new life', async ({ lose }) => {
    const producer = deployment.producer()
    const { worker, ran, open } = await notingWorker('again', { lease: 1000 })
    open.open()
    await worker.drain()
    const before = await idOf('again')
    await database.rows(lose)
    await eventually(
      'it lives anew',
      async () =>
        (
          await database.rows(
            'select from longshore.workers where id <> $1 and dead_at is null and drained_at is not null',
            [before],
          )
        ).length === 1,
    )
    const ref = await producer.enqueue(task, 1)
    await eventually('it is drained', async () => worker.isDrained)
    expect((await producer.get(ref.id))?.state).toBe('ready')
    await worker.resume()
    await producer.waitFor(ref)
    expect(ran).toEqual([1])
  })
})
