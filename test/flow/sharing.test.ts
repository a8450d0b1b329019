/** How evenly worker processes share. Counted from the journal, since what a worker says of itself is no proof. */
import { describe, expect, inject, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import type { JournalRun } from '../support/journal.ts'
import { type PartPlan, part, talk } from '../support/process-tasks.ts'
import { eventually } from '../support/signals.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
const sum = (shares: number[]) => shares.reduce((total, share) => total + share, 0)

const equal = (): PartPlan => ({ ms: 5, way: 'succeed' })
/** One of ten takes as long as all the others together, and more. */
const unequal = (n: number): PartPlan => ({ ms: n % 10 === 7 ? 100 : 5, way: 'succeed' })

/** One process that the machine holds up for a moment is behind afterwards, whoever hands out the jobs. Unfairness comes again. */
const ROUNDS = 3

/** Of one of a few rounds. Told whole when all are out of bounds. */
async function expectEven(round: () => Promise<number[][]>, tolerance: number) {
  const told: string[] = []
  for (let n = 0; n < ROUNDS; n++) {
    const measures = await round()
    const isEven = measures.every(shares => {
      const mean = sum(shares) / shares.length
      return shares.every(share => Math.abs(share / mean - 1) <= tolerance)
    })
    if (isEven) return
    told.push(...measures.map(shares => shares.map(Math.round).join(' ')))
  }
  expect.fail(`each time somebody was off by more than ${tolerance * 100} %:\n${told.join('\n')}`)
}

describe.each(['direct', 'fanout', 'balanced'] as const)('worker processes, %s', mode => {
  const database = useDatabase()
  const deployment = useDeployment(database, mode === 'direct' ? {} : { redis: inject('redisUrl') })
  const startProcess = useWorkerProcesses(database, deployment)

  const start = async (count: number, maxConcurrentTasks?: number) => {
    if (mode !== 'direct') await deployment.relay({ scheduleMode: mode })
    const options = maxConcurrentTasks === undefined ? {} : { maxConcurrentTasks }
    return Promise.all(numbers(count).map(() => startProcess(options)))
  }
  const jobs = async (plan: (n: number) => PartPlan, count: number) => {
    const producer = deployment.producer({ tasks: [part] })
    const before = (await deployment.runs()).length
    // A part is there when they look for the first time, the rest comes while they run.
    for (let at = 0; at < count; at += 500)
      await producer.enqueueMany(part, numbers(Math.min(500, count - at)).map(plan))
    await drained()
    const runs = (await deployment.runs()).slice(before)
    expect(runs).toHaveLength(count)
    return runs
  }
  const drained = () =>
    eventually(
      'nothing is unfinished',
      async () => (await database.rows('select from longshore.jobs limit 1')).length === 0,
      50_000,
    )
  const counts = (workers: readonly { id: number }[], runs: readonly JournalRun[]) =>
    workers.map(({ id }) => runs.filter(run => run.worker === id).length)
  const busy = (workers: readonly { id: number }[], runs: readonly JournalRun[]) =>
    workers.map(({ id }) =>
      sum(runs.filter(run => run.worker === id).map(run => (run.endedAt ?? run.startedAt) - run.startedAt)),
    )

  it('[W14] three share jobs of equal and of unequal lengths within 20 % of the mean', async () => {
    const workers = await start(3, 20)
    await expectEven(async () => [counts(workers, await jobs(equal, 2000))], 0.2)
    await expectEven(async () => {
      const mixed = await jobs(unequal, 2000)
      return [counts(workers, mixed), busy(workers, mixed)]
    }, 0.2)
  })

  // With few long jobs for each their number is a matter of luck; the time for which permits are taken is not.
  // Through Redis with `npm run test:all`: three workers show there how it spreads.
  it.runIf(mode === 'direct' || process.env['LONGSHORE_ALL'])(
    '[W14] ten on two cores are busy within 40 % of the mean',
    async () => {
      const workers = await start(10, 20)
      await expectEven(async () => [busy(workers, await jobs(equal, 2000))], 0.4)
      await expectEven(async () => [busy(workers, await jobs(unequal, 3000))], 0.4)
    },
  )

  it('[W14] who has room for all of a burst takes it in small parts, so that others come in between', async () => {
    const workers = await start(2)
    const producer = deployment.producer({ tasks: [talk] })
    await producer.enqueueMany(talk, numbers(900))
    await eventually('all are inside', async () => (await deployment.runs()).length === 900)
    const claims = new Map<number, number>()
    for (const { token } of await deployment.runs()) claims.set(token, (claims.get(token) ?? 0) + 1)
    expect(Math.max(...claims.values())).toBeLessThanOrEqual(50)
    expect([...claims.values()][0]).toBeLessThanOrEqual(10)
    for (const worker of workers) worker.release()
    await drained()
  })
})
