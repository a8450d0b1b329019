/** Slots of a limit go to its best jobs, whichever worker can run them: claims leave slots to workers that wait for them. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { underWay, useGuards } from '../support/guards.ts'
import { waitsForLock } from '../support/locks.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { begin, barrier } = useGuards(database, deployment)
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
const shared = defineTask<number>({ name: 'shared', concurrency: 2 })
const keyed = defineTask<number>({ name: 'keyed', concurrencyPerKey: 2 })
const BARRIER = 4717

type Worker = Awaited<ReturnType<typeof workByHand>>
/** Settles one run and claims as many in the same call. */
const followUp = async (worker: Worker, run: Claimed | undefined): Promise<number> => {
  const [row] = await database.rows<{ ids: string | null }>(
    'select ids from longshore.settle_and_claim($1, $2, $3, null, null, 1)',
    [worker.id, [run?.id], [run?.lease_token]],
  )
  return row?.ids?.split(',').length ?? 0
}

interface Case {
  share: string
  task: typeof shared
  options: object
  plain: object
  special: object
  tags?: string[]
  properties?: Record<string, string>
}
const cases: Case[] = [
  {
    share: 'a task with constraints on some jobs',
    task: shared,
    options: {},
    plain: {},
    special: { constraints: { gpu: 'a100' } },
    properties: { gpu: 'a100' },
  },
  {
    share: 'a task in two tags',
    task: shared,
    options: {},
    plain: {},
    special: { tag: 'gpu' },
    tags: ['gpu'],
  },
  {
    share: 'a key with constraints on some jobs',
    task: keyed,
    options: { concurrencyKey: 'k' },
    plain: {},
    special: { constraints: { gpu: 'a100' } },
    properties: { gpu: 'a100' },
  },
]

/** A backlog that every worker may run holds both slots; three urgent jobs wait that only `special` may run. */
const contend = async ({ task, options, plain, special, tags, properties }: Case) => {
  const producer = deployment.producer({ tasks: [task] })
  await producer.enqueueMany(task, numbers(20), { ...options, ...plain })
  const worker = await workByHand(database, [task.name])
  const runs = [...(await worker.claim(1)), ...(await worker.claim(1))]
  expect(runs).toHaveLength(2)
  await producer.enqueueMany(task, numbers(3), { ...options, ...special, priority: 2047 })
  const other = await workByHand(database, [task.name], tags, properties)
  expect(await other.claim(1)).toEqual([])
  return { worker, other, runs, producer }
}

describe('slots that two unlike workers want', () => {
  it.each(cases)('[X10] [C7] go to the better job of a worker that waits: $share', async one => {
    const { worker, other, runs } = await contend(one)
    expect(await followUp(worker, runs[0])).toBe(0)
    expect(await other.claim(1)).toHaveLength(1)
    expect(await followUp(worker, runs[1])).toBe(0)
    expect(await other.claim(1)).toHaveLength(1)
    expect(await other.answer(1)).toBe('full')
  })

  it('[X10] pass on to the same worker again and again where a claim does not look at who waits', async () => {
    const pass = async () => {
      const { worker, runs } = await contend(cases[0] as Case)
      const followed = await followUp(worker, runs[0])
      await deployment.clear()
      return followed
    }
    expect(await pass()).toBe(0)
    expect(await weakened(database, [{ name: 'claim', guard: 'waiters-first' }], pass)).toBe(1)
  })

  it('[X10] [C7] go to the worker that has them where the job of the other is worse', async () => {
    const producer = deployment.producer({ tasks: [shared] })
    await producer.enqueueMany(shared, numbers(5), { priority: 5 })
    const worker = await workByHand(database, ['shared'])
    const [run] = await worker.claim(2)
    await producer.enqueue(shared, 1, { constraints: { gpu: 'a100' } })
    const other = await workByHand(database, ['shared'], ['default'], { gpu: 'a100' })
    // It may run the backlog as well, and finds no slot.
    expect(await other.claim(5)).toEqual([])
    expect(await followUp(worker, run)).toBe(1)
  })

  it('[X11] are left to a worker that does not come for a second, no longer', async () => {
    const wait = async () => {
      const { worker, other, runs } = await contend(cases[0] as Case)
      expect(await followUp(worker, runs[0])).toBe(0)
      expect(await worker.claim(1)).toEqual([])
      const reserved = await database.rows(
        `update longshore.limit_waiters set reserved_at = reserved_at - interval '1 second', asked_at = asked_at - interval '1 second'
         where reserved_at is not null returning worker_id`,
      )
      expect(reserved).toEqual([{ worker_id: other.id }])
      await database.rows('update longshore.workers set listening = true')
      const claimed = (await worker.claim(1)).length
      await deployment.clear()
      return claimed
    }
    expect(await wait()).toBe(1)
    const patient = { name: 'leave_to_waiters', guard: 'left-for-a-second' }
    expect(await weakened(database, [patient], wait)).toBe(0)
  })

  it('are free for all when the worker that waited has no job any more', async () => {
    const { worker, runs, producer } = await contend(cases[0] as Case)
    const urgent = await database.rows<{ id: string }>(
      "select id from longshore.jobs where state = 'ready' order by score limit 3",
    )
    for (const { id } of urgent) await producer.cancel(id)
    await database.rows("update longshore.limit_waiters set asked_at = asked_at - interval '2 seconds'")
    await worker.settle(runs.map(settling))
    expect(await worker.claim(2)).toHaveLength(2)
    expect(await database.rows('select from longshore.limit_waiters where reserved_at is not null')).toEqual(
      [],
    )
  })

  it('costs nothing where all jobs of a task stand in one lane: nobody is noted', async () => {
    const alone = defineTask<number>({ name: 'one-lane', concurrency: 2 })
    const producer = deployment.producer({ tasks: [alone] })
    await producer.enqueueMany(alone, numbers(5))
    const [one, two] = [await workByHand(database, ['one-lane']), await workByHand(database, ['one-lane'])]
    await one.claim(2)
    expect(await two.answer(2)).toBe('full')
    expect(await database.rows('select from longshore.limit_waiters')).toEqual([])
  })
})

/**
 * Two workers settle a run each and claim in the same call. The first has its slot in the second group and would take the next from the
 * first group, the other the other way round.
 */
const crossOver = async () => {
  const hundred = defineTask<number>({ name: 'hundred', concurrency: 100 })
  const producer = deployment.producer({ tasks: [hundred] })
  await producer.enqueueMany(hundred, numbers(3))
  await database.rows("select longshore.find_lane('default', 'other', 'default', 'c:')")
  // With one lane alone the slots would pass on.
  const [one, two] = [
    await workByHand(database, ['hundred', 'other']),
    await workByHand(database, ['hundred', 'other']),
  ]
  const [low] = await two.claim(1)
  const holder = await begin()
  await holder.query('select from longshore.slot_groups where number = 0 for update')
  const [high] = await one.claim(1)
  await holder.query('rollback')
  const [first, second] = [await begin(), await begin()]
  const exchange = (client: typeof first, worker: Worker, run: Claimed | undefined) =>
    underWay(
      client.query('select ids from longshore.settle_and_claim($1, $2, $3, null, null, 2)', [
        worker.id,
        [run?.id],
        [run?.lease_token],
      ]),
    )
  const { open } = await barrier(BARRIER)
  const calls = [exchange(first, one, high)]
  await waitsForLock(database, first)
  calls.push(exchange(second, two, low))
  await waitsForLock(database, second)
  await open()
  const ends = await Promise.allSettled(
    calls.map(async (call, n) => {
      await call
      await (n === 0 ? first : second).query('commit')
    }),
  )
  await deployment.clear()
  return ends.filter(end => end.status === 'rejected').map(end => (end.reason as { code: string }).code)
}

describe('two claims under a limit that free slots and take others', () => {
  const pause = { name: 'claim', point: 'claimed', insertion: pauseAt(BARRIER) }

  it('[X11] [L5] free first: who waits for slot groups holds none, so they never wait for each other', async () => {
    expect(await weakened(database, [pause], crossOver)).toEqual([])
    const freeLast = {
      ...pause,
      insertion: `${pauseAt(BARRIER)}
        perform longshore.reopen(longshore.free_slots(p_held_lanes, p_held_slots, p_held_key_slots));`,
    }
    const weak = [{ name: 'claim', guard: 'free-held', replacement: 'null;' }, freeLast]
    expect(await weakened(database, weak, crossOver)).toEqual(['40P01'])
  })
})
