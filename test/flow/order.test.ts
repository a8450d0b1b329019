import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import type { JournalRun } from '../support/journal.ts'
import { noops } from '../support/process-tasks.ts'
import { lookAtQueue } from '../support/queue-look.ts'
import { eventually } from '../support/signals.ts'
import { watchTakes } from '../support/takes.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const startProcess = useWorkerProcesses(database, deployment)

/** Over three tasks: priorities and run times with many ties. Returns the ids, best first. */
async function mixedBacklog(size: number): Promise<string[]> {
  const producer = deployment.producer({ tasks: noops })
  for (let at = 0; at < size; at += 50) {
    const chunk = at / 50
    const task = noops[(chunk * 7) % 3]
    if (!task) throw new Error('no task')
    const numbers = Array.from({ length: 50 }, (_, n) => at + n)
    const runAt = new Date(1_700_000_000_000 + ((chunk * 5) % 11))
    await producer.enqueueMany(task, numbers, { priority: (chunk * 3) % 8, runAt })
  }
  const rows = await database.rows<{ id: string }>(
    `select id from longshore.jobs
     order by longshore.priority_of(score) desc, longshore.run_at_of(score), id`,
  )
  return rows.map(row => row.id)
}

const drained = () =>
  eventually(
    'nothing is unfinished',
    async () => (await database.rows('select from longshore.jobs limit 1')).length === 0,
    50_000,
  )

/** Pairs of runs of which the worse had been taken before the claim of the better one began. */
function overtaken(runs: readonly JournalRun[], order: readonly string[]) {
  const rank = new Map(order.map((id, n) => [id, n]))
  const rankOf = (run: JournalRun) => rank.get(run.jobId) ?? -1
  const taken = [...runs].sort((a, b) => a.startedAt - b.startedAt)
  const begun = [...runs].sort((a, b) => a.claimBeganAt - b.claimBeganAt)
  const found: [worse: JournalRun, better: JournalRun][] = []
  let worst: JournalRun | undefined
  let at = 0
  for (const run of begun) {
    for (let next = taken[at]; next && next.startedAt < run.claimBeganAt; next = taken[++at]) {
      if (!worst || rankOf(next) > rankOf(worst)) worst = next
    }
    if (worst && rankOf(worst) > rankOf(run)) found.push([worst, run])
  }
  return found
}

/** A take is a step of its own, and decides; claims that follow two takes may pass each other on their way. */
async function inRedis(redis: string) {
  await Promise.all([1, 2, 3].map(() => startProcess()))
  const setDrained = (isDrained: boolean) =>
    database.rows('select longshore.drain_worker(id, $1) from longshore.workers', [isDrained])
  await setDrained(true)
  const { client, keys } = await lookAtQueue(database, redis)
  await eventually('none takes', async () => (await client.hlen((await keys())?.of('workers') ?? '')) === 0)
  const order = await mixedBacklog(10_000)
  const takes = await watchTakes(redis, database)
  await setDrained(false)
  await drained()
  takes.stop()
  expect(await deployment.runs()).toHaveLength(10_000)
  const rank = new Map(order.map((id, n) => [id, n]))
  // The first of an id: what a direct claim had locked is put back, taken again, and found to be gone.
  const taken = [...new Set(takes.ids)]
  expect(taken.length).toBeGreaterThan(1000)
  expect(taken).toEqual([...taken].sort((a, b) => (rank.get(a) ?? 0) - (rank.get(b) ?? 0)))
}

describe('the order of claims', () => {
  it('[C7] of one worker process is exact over a mixed backlog of 10,000: priority, run time, submission', async () => {
    const order = await mixedBacklog(10_000)
    // The first claim takes every permit, and handlers end at once: one claim at a time.
    await startProcess({ maxConcurrentTasks: 10 })
    await drained()
    const runs = await deployment.runs()
    expect(runs.map(run => run.jobId)).toEqual(order)
  })

  it('[C7] of three worker processes never takes a worse job before a claim that takes a better one begins', async () => {
    if (deployment.redis) return inRedis(deployment.redis)
    const order = await mixedBacklog(10_000)
    await Promise.all([1, 2, 3].map(() => startProcess()))
    await drained()
    const runs = await deployment.runs()
    expect(runs).toHaveLength(10_000)
    expect(overtaken(runs, order)).toEqual([])
    // The check can fail: two claims of the last third, exchanged in time.
    const [first] = runs
    const last = runs.at(-1)
    if (!first || !last) throw new Error('nothing ran')
    const exchanged = [{ ...first, jobId: last.jobId }, ...runs.slice(1, -1), { ...last, jobId: first.jobId }]
    expect(overtaken(exchanged, order)).not.toEqual([])
  })

  it('[C8] of three worker processes gives each of 5,000 jobs to one of them, once', async () => {
    await Promise.all([1, 2, 3].map(() => startProcess({ maxConcurrentTasks: 20 })))
    const order = await mixedBacklog(5000)
    await drained()
    const runs = await deployment.runs()
    expect(runs).toHaveLength(5000)
    expect(new Set(runs.map(run => run.jobId)).size).toBe(5000)
    expect(runs.every(run => run.wentTo === 'ended')).toBe(true)
    expect(new Set(runs.map(run => run.worker)).size).toBe(3)
    expect(order.length).toBeLessThanOrEqual(5000) // some had run before all were there
  })
})
