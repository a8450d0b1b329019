import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import type { ToEnqueue } from '../support/enqueue-main.ts'
import { mostAtOnce } from '../support/journal.ts'
import { noops, tenant, wait } from '../support/process-tasks.ts'
import { eventually } from '../support/signals.ts'
import { clockOffBy, spawnScript } from '../support/spawn-cli.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const startProcess = useWorkerProcesses(database, deployment)

const HOUR_MS = 3_600_000
const [noop] = noops
if (!noop) throw new Error('there is no task')
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

/** By a producer in a process of its own. */
const enqueueFrom = async (offByMs: number, jobs: ToEnqueue[]) => {
  const args = [JSON.stringify({ postgres: database.url, jobs })]
  const { stdout } = await spawnScript('test/support/enqueue-main.ts', args, clockOffBy(offByMs)).ended
  const { now, ids } = JSON.parse(stdout) as { now: number; ids: string[] }
  expect(Math.abs(now - Date.now() - offByMs)).toBeLessThan(HOUR_MS / 2)
  return ids.map(id => ({ id }))
}

describe('clocks that are an hour off', () => {
  it('[X5] [S7] [L1] of workers: no effect on leases, delays, due times and limits', async () => {
    const producer = deployment.producer({ tasks: [noop, tenant, wait] })
    const ahead = await startProcess({ lease: '6s', clockOffByMs: HOUR_MS })
    const behind = await startProcess({ lease: '6s', clockOffByMs: -HOUR_MS })
    const held = await producer.enqueueMany(wait, numbers(4))
    const refs = [
      ...(await Promise.all(
        numbers(3).map(key => producer.enqueueMany(tenant, numbers(30), { concurrencyKey: `tenant ${key}` })),
      )),
      await Promise.all(numbers(10).map(n => producer.enqueue(noop, n, { delay: 100 * n }))),
    ].flat()
    const far = await producer.enqueue(noop, 0, { delay: '30m' })
    for (const ref of refs) await producer.waitFor(ref)
    expect(await producer.get(far)).toMatchObject({ state: 'scheduled' })
    const expiries = new Set<string>()
    await eventually('both have beaten', async () => {
      const rows = await database.rows<{ id: number; left: number; expires: string }>(
        `select id, extract(epoch from expires_at - clock_timestamp())::float8 as left, expires_at::text as expires
         from longshore.workers where dead_at is null order by id`,
      )
      expect(rows.map(row => row.id)).toEqual([ahead.id, behind.id])
      for (const { left, expires } of rows) {
        expect(left).toBeGreaterThan(0)
        expect(left).toBeLessThanOrEqual(6)
        expiries.add(expires)
      }
      return expiries.size > 2 * 2
    })
    ahead.release()
    behind.release()
    expect(await producer.change(far, { delay: 0 })).toBe('changed')
    await deployment.atRest({ enqueued: [...held, ...refs, far] })

    const runs = await deployment.runs()
    expect(runs.filter(run => run.isRescued)).toEqual([])
    expect(mostAtOnce(runs.filter(run => run.task === 'tenant'))).toBeLessThanOrEqual(6)
    expect(mostAtOnce(runs.filter(run => run.task === 'wait'))).toBeLessThanOrEqual(4)
    expect(
      await database.rows(
        `select id from longshore.finished_jobs
         where started_at < longshore.run_at_of(score) or finished_at < started_at
           or abs(extract(epoch from finished_at - clock_timestamp())) > 1800`,
      ),
    ).toEqual([])
  })

  it('[X5] [C7] of producers: they shift the tie-break and their own run times, and nothing else', async () => {
    const jobs: ToEnqueue[] = [
      { task: noop.name, payload: 0 },
      { task: noop.name, payload: 1, options: { delay: 100 } },
      { task: noop.name, payload: 2, options: { delay: '30m' } },
      { task: noop.name, payload: 3, runInMs: 2 * HOUR_MS },
    ]
    const [behind, right, ahead] = await Promise.all([
      enqueueFrom(-HOUR_MS, jobs),
      enqueueFrom(0, jobs),
      enqueueFrom(HOUR_MS, jobs),
    ])
    const all = [...behind, ...right, ...ahead]
    // In minutes from the database's own time of the enqueue.
    const rows = await database.rows<{ id: string; due: number; made: number }>(
      `select id, round(extract(epoch from longshore.run_at_of(score) - created_at) / 60)::int as due,
         round(extract(epoch from created_at - clock_timestamp()) / 60)::int as made
       from longshore.jobs order by array_position($1::uuid[], id)`,
      [all.map(({ id }) => id)],
    )
    expect(rows.map(row => [row.due, row.made])).toEqual(
      [60, 120, 180].flatMap(ownRunAt => [0, 0, 30, ownRunAt].map(due => [due, 0])),
    )
    // Ids are made of the producer's clock, and order only what is due at the same moment.
    expect([...all.map(({ id }) => id)].sort()).toEqual(all.map(({ id }) => id))

    await startProcess()
    const startsSoon = [behind, right, ahead].flatMap(ids => ids.slice(0, 2))
    await eventually('what is due has run', async () => {
      const rows = await database.rows('select from longshore.finished_jobs')
      return rows.length === startsSoon.length
    })
    const producer = deployment.producer()
    for (const ids of [behind, right, ahead])
      for (const { id } of ids.slice(2)) expect(await producer.change(id, { delay: 0 })).toBe('changed')
    await deployment.atRest({ enqueued: all })
    expect(await deployment.runs()).toHaveLength(all.length)
  })
})
