import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { mostAtOnce } from '../support/journal.ts'
import { nap, noops, poison, wait } from '../support/process-tasks.ts'
import { eventually } from '../support/signals.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const startProcess = useWorkerProcesses(database, deployment)

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

const runningUnder = (worker: number, jobs: number) =>
  eventually(`worker ${worker} runs ${jobs} jobs`, async () => {
    const rows = await database.rows('select from longshore.jobs where worker_id = $1', [worker])
    return rows.length === jobs
  })

const finished = () =>
  database.rows<{ id: string; state: string; attempts: number; rescues: number; worker_id: number }>(
    'select id, state, attempts, rescues, worker_id from longshore.finished_jobs order by id',
  )

/** A worker in this process that leads the upkeep from the start, so that no test waits for that lease to run out. */
const startLeader = async () => {
  const [task] = noops
  if (task) await deployment.worker({ handlers: [task.handle(() => undefined)] })
}

const usedSlots = async () =>
  (await database.rows<{ used: number }>('select sum(used)::int as used from longshore.slot_groups'))[0]?.used

describe('a worker process dies', () => {
  it('[S7] [W15] while running: its jobs are rescued once, their slots freed once, and another completes them', async () => {
    const producer = deployment.producer({ tasks: [wait] })
    const doomed = await startProcess({ lease: '2s' })
    const refs = await producer.enqueueMany(wait, numbers(6))
    await runningUnder(doomed.id, 4)
    const heir = await startProcess()
    await doomed.kill()
    // It takes the upkeep over, too.
    await runningUnder(heir.id, 4)
    expect(await usedSlots()).toBe(4)
    heir.release()
    await deployment.atRest({ enqueued: refs })
    const rows = await finished()
    const byHeir = { state: 'succeeded', attempts: 1, worker_id: heir.id }
    expect(rows).toEqual(refs.map(({ id }, n) => ({ id, ...byHeir, rescues: n < 4 ? 1 : 0 })))
    const runs = await deployment.runs()
    expect(runs.map(run => [run.worker, run.wentTo])).toEqual([
      ...Array(4).fill([doomed.id, 'ready']),
      ...Array(6).fill([heir.id, 'ended']),
    ])
    expect(mostAtOnce(runs)).toBe(4)
    expect(await database.rows('select id from longshore.workers')).toEqual([{ id: heir.id }])
  })

  it('[S7] of one of its jobs: that job fails as poison; the last time it runs alone, and the innocent complete', async () => {
    await startLeader()
    const producer = deployment.producer({ tasks: [poison, nap] })
    const innocents = await producer.enqueueMany(nap, numbers(40))
    const killer = await producer.enqueue(poison, 0, { priority: 1 })
    innocents.push(...(await producer.enqueueMany(nap, numbers(40))))
    let isOver = false
    const keepAlive = async () => {
      while (!isOver) await (await startProcess({ lease: '2s', maxConcurrentTasks: 10 })).ended
    }
    const kept = Promise.all([keepAlive(), keepAlive()])
    expect(await producer.waitFor(killer)).toMatchObject({
      state: 'failed',
      attempts: 0,
      error: { code: 'POISONED' },
    })
    for (const ref of innocents) expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    isOver = true
    const runs = await deployment.runs()
    const deaths = runs.filter(run => run.jobId === killer.id)
    expect(deaths.map(run => run.wentTo)).toEqual(['ready', 'ready', 'ended'])
    const last = deaths[2]?.worker
    expect(runs.filter(run => run.worker === last && run.isRescued)).toEqual([])
    for (const row of await finished()) expect(row.rescues).toBeLessThanOrEqual(2)
    await deployment.atRest({ enqueued: [killer, ...innocents] })
    kept.catch(() => undefined) // ended with the test, perhaps just begun
  })

  it('[S13] while a job of it is being cancelled: the job is cancelled', async () => {
    await startLeader()
    const producer = deployment.producer({ tasks: [wait] })
    const doomed = await startProcess({ lease: '2s' })
    const [cancelled, other] = await producer.enqueueMany(wait, numbers(2))
    if (!cancelled || !other) throw new Error('not enqueued')
    await runningUnder(doomed.id, 2)
    doomed.pause()
    expect(await producer.cancel(cancelled)).toBe('cancelling')
    await doomed.kill()
    const heir = await startProcess()
    heir.release()
    expect(await producer.waitFor(cancelled)).toMatchObject({ state: 'cancelled' })
    expect(await producer.waitFor(other)).toMatchObject({ state: 'succeeded' })
    const runs = await deployment.runs()
    expect(runs.filter(run => run.jobId === cancelled.id)).toHaveLength(1)
    await deployment.atRest({ enqueued: [cancelled, other] })
  })
})

describe('a worker process that is paused beyond its lease, then resumes', () => {
  it('[X4] its completions are refused, nothing is released twice, and it begins a second life', async () => {
    await startLeader()
    const producer = deployment.producer({ tasks: [wait] })
    const sleeper = await startProcess({ lease: '2s', name: 'sleeper' })
    const refs = await producer.enqueueMany(wait, numbers(4))
    await runningUnder(sleeper.id, 4)
    sleeper.pause()
    const heir = await startProcess()
    await runningUnder(heir.id, 4)
    // Told to return before it wakes: its handlers end with its first breath.
    sleeper.release()
    sleeper.resume()
    let again = 0
    await eventually('it lives again', async () => {
      const [row] = await database.rows<{ id: number }>(
        "select id from longshore.workers where name = 'sleeper' and dead_at is null",
      )
      again = row?.id ?? 0
      return again > heir.id
    })
    expect(await finished()).toEqual([])
    expect(await usedSlots()).toBe(4)
    await runningUnder(heir.id, 4)
    heir.release()
    await Promise.all(refs.map(ref => producer.waitFor(ref)))
    await heir.kill()
    const next = await producer.enqueue(wait, 4)
    await deployment.atRest({ enqueued: [...refs, next] })
    const rows = await finished()
    expect(rows.map(row => [row.state, row.worker_id, row.attempts, row.rescues])).toEqual([
      ...Array(4).fill(['succeeded', heir.id, 1, 1]),
      ['succeeded', again, 1, 0],
    ])
    const runs = await deployment.runs()
    expect(runs.filter(run => run.wentTo === 'ended')).toHaveLength(5)
    expect(mostAtOnce(runs)).toBe(4)
  })
})
