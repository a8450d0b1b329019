import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useRedis } from '../support/own-redis.ts'
import { answer, noops } from '../support/process-tasks.ts'
import { eventually } from '../support/signals.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, { redis })
const startProcess = useWorkerProcesses(database, deployment)

const [noop] = noops
if (!noop) throw new Error('there is no task')
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

describe('a long open transaction of a client', () => {
  it('[X1] [S9] with an enqueue in it, also as child of a running parent: others flow, and its jobs are delivered after the commit', async () => {
    const producer = deployment.producer({ tasks: [noop, answer] })
    const worker = await startProcess()
    const group = producer.group()
    const [parent, ...neighbours] = ['parent', 'a', 'b', 'c'].map(name => group.add(answer, name))
    if (!parent) throw new Error('no parent')
    await group.submit()
    await eventually('all of them run', async () => {
      return (await database.rows("select from longshore.jobs where state = 'running'")).length === 4
    })

    const tx = await database.connect()
    await tx.query('begin')
    const alone = await producer.enqueue(noop, 0, { tx })
    const more = producer.addToGroup(group)
    const child = more.add(noop, 1, { after: parent })
    await more.submit({ tx })

    // Enqueued later, committed earlier: whoever reads the outbox must not count on its numbers.
    const others = await producer.enqueueMany(noop, numbers(100))
    for (const ref of others) await producer.waitFor(ref)
    // The four end at once, in one batch.
    worker.release()
    for (const ref of neighbours)
      expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', attempts: 1 })
    others.push(...(await producer.enqueueMany(noop, numbers(100))))
    for (const ref of others.slice(100)) await producer.waitFor(ref)
    expect(await producer.get(parent)).toMatchObject({ state: 'running' })
    expect(await producer.get(alone)).toBeUndefined()

    await tx.query('commit')
    for (const ref of [alone, parent, child])
      expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', attempts: 1 })
    const enqueued = [alone, parent, child, ...neighbours, ...others]
    await deployment.atRest({ enqueued })
    const runs = await deployment.runs()
    expect(runs).toHaveLength(enqueued.length)
    expect(runs.slice(-2).map(run => run.jobId)).toEqual(expect.arrayContaining([alone.id, child.id]))
  })
})
