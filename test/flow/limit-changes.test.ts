/** Limits of many concurrency keys are changed in pages: claims go on meanwhile, and another process finishes what one began. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { byRule, type Guard, underWay, useGuards } from '../support/guards.ts'
import { waitsForLock } from '../support/locks.ts'
import { eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin, barrier } = useGuards(database, deployment)
const BARRIER = 85
/** More than two pages. */
const KEYS = 1200
const keyed = defineTask<number>({ name: 'keyed', concurrencyPerKey: 2 })

const factsOf = (perKey?: number) =>
  JSON.stringify([
    { name: 'keyed', queue: 'default', tag: 'default', maxAttempts: 3, concurrencyPerKey: perKey },
  ])
const register = (perKey?: number) => database.rows('select longshore.register_tasks($1)', [factsOf(perKey)])
const nextPage = async () =>
  (
    await database.rows<{ task: string | null; changed: number; is_done: boolean }>(
      'select * from longshore.change_limits()',
    )
  )[0]
const changing = () => database.rows('select task from longshore.limit_changes')

/** Keys that have been met before, each with its limit. */
const meetKeys = async (keys = KEYS) => {
  await register(2)
  await database.rows(
    `with made as (
       insert into longshore.limits (task, key, capacity)
       select 'keyed', 'key ' || n, 2 from generate_series(1, $1::int) n returning id
     )
     insert into longshore.slot_groups (limit_id, number, capacity)
     select m.id, s.number, s.capacity from made m, longshore.spread_slots(2) s`,
    [keys],
  )
}
const enqueue = (key: string, jobs: number) =>
  deployment.producer({ tasks: [keyed] }).enqueueMany(
    keyed,
    Array.from({ length: jobs }, (_, n) => n),
    { concurrencyKey: key },
  )
const capacities = async () =>
  Object.fromEntries(
    (
      await database.rows<{ capacity: number | null; keys: number }>(
        `select k.capacity, count(*)::int as keys from longshore.limits k where k.key <> '' group by 1`,
      )
    ).map(({ capacity, keys }) => [String(capacity), keys]),
  )
const runningOf = async (key: string) =>
  (
    await database.rows(
      `select from longshore.jobs j join longshore.lanes l on l.id = j.lane
       where j.state = 'running' and l.concurrency_key = $1`,
      [key],
    )
  ).length

describe('the limits of a thousand keys', () => {
  it('[X12] [L6] change a page at a time; who registers does the first, and the leader the others', async () => {
    await meetKeys()
    await register(3)
    expect(await capacities()).toEqual({ 2: KEYS - 500, 3: 500 })
    expect(await changing()).toEqual([{ task: 'keyed' }])
    expect(await nextPage()).toEqual({ task: 'keyed', changed: 500, is_done: false })
    expect(await nextPage()).toEqual({ task: 'keyed', changed: 200, is_done: true })
    expect(await nextPage()).toMatchObject({ task: null })
    expect(await capacities()).toEqual({ 3: KEYS })
    expect(await changing()).toEqual([])
  })

  it('[X12] [L6] are finished by whoever leads, when the process that began is gone', async () => {
    await meetKeys()
    await register(5)
    expect(await changing()).toEqual([{ task: 'keyed' }])
    await deployment.worker({ handlers: [defineTask({ name: 'other' }).handle(() => undefined)] })
    await eventually('all are changed', async () => (await changing()).length === 0)
    expect(await capacities()).toEqual({ 5: KEYS })
  })

  it('[X12] [L6] changed again before the end become what was said last', async () => {
    await meetKeys()
    await register(3)
    await register(7)
    while ((await nextPage())?.task) expect(await changing()).not.toHaveLength(2)
    expect(await capacities()).toEqual({ 7: KEYS })
  })

  it('[X12] [L6] lower: the surplus drains; raise: rooms open, before and behind the page', async () => {
    await meetKeys()
    // Of the first page, and of the last.
    const ends = ['key 1', 'key 999']
    for (const key of ends) await enqueue(key, 6)
    const worker = await workByHand(database, ['keyed'])
    const runs: Claimed[] = []
    for (let call = 0; call < 3; call++) runs.push(...(await worker.claim(20)))
    expect(runs).toHaveLength(4)
    await register(1)
    await worker.claim(20)
    expect([await runningOf('key 1'), await runningOf('key 999')]).toEqual([2, 2])
    while ((await nextPage())?.task) await worker.claim(20)
    await worker.settle(runs.map(settling))
    for (let call = 0; call < 3; call++) await worker.claim(20)
    expect([await runningOf('key 1'), await runningOf('key 999')]).toEqual([1, 1])
    await register(3)
    while ((await nextPage())?.task) await worker.claim(20)
    for (let call = 0; call < 3; call++) await worker.claim(20)
    expect([await runningOf('key 1'), await runningOf('key 999')]).toEqual([3, 3])
  })

  it('[X12] [L6] removed and set again before the end hold for what ran without them', async () => {
    await meetKeys()
    const ends = ['key 1', 'key 999']
    for (const key of ends) await enqueue(key, 6)
    const worker = await workByHand(database, ['keyed'])
    await worker.claim(20)
    await register()
    for (let call = 0; call < 3; call++) await worker.claim(20)
    // The first page has no limit any more, the last one still has.
    expect([await runningOf('key 1'), await runningOf('key 999')]).toEqual([6, 2])
    await register(4)
    while ((await nextPage())?.task) await worker.claim(20)
    for (let call = 0; call < 3; call++) await worker.claim(20)
    expect([await runningOf('key 1'), await runningOf('key 999')]).toEqual([6, 4])
  })

  it('[X12] [L6] a key that was limited once and is met again gets its limit', async () => {
    await meetKeys(1)
    await register()
    expect(await capacities()).toEqual({ null: 1 })
    await database.rows("update longshore.tasks set concurrency_per_key = 3 where name = 'keyed'")
    await enqueue('key 1', 9)
    expect(await (await workByHand(database, ['keyed'])).claim(20)).toHaveLength(3)
    expect(await capacities()).toEqual({ 3: 1 })
  })
})

describe('a claim beside a page', () => {
  it('[X12] [L6] the claim first: its key is passed over, and the next pass changes it', async () => {
    await meetKeys(2)
    await enqueue('key 1', 5)
    const worker = await workByHand(database, ['keyed'])
    const claiming = await begin()
    expect(await worker.claim(1, claiming)).toHaveLength(1)
    await register(4)
    expect(await capacities()).toEqual({ 2: 1, 4: 1 })
    expect(await nextPage()).toEqual({ task: 'keyed', changed: 0, is_done: false })
    await claiming.query('commit')
    expect(await nextPage()).toEqual({ task: 'keyed', changed: 1, is_done: true })
    for (let call = 0; call < 3; call++) await worker.claim(20)
    expect(await runningOf('key 1')).toBe(4)
  })

  it('[X12] [L6] the page first: the claim does not wait, and looks again', async () => {
    await meetKeys(2)
    await enqueue('key 1', 5)
    const worker = await workByHand(database, ['keyed'])
    const changes = await begin()
    await weakened(
      database,
      [{ name: 'change_key_limits', point: 'held', insertion: pauseAt(BARRIER) }],
      async () => {
        const gate = await barrier(BARRIER)
        const changed = underWay(changes.query('select longshore.register_tasks($1)', [factsOf(4)]))
        await waitsForLock(database, changes)
        expect(await worker.answer(20)).toBe('busy')
        await gate.open()
        await changed
      },
    )
    await changes.query('commit')
    for (let call = 0; call < 3; call++) await worker.claim(20)
    expect(await runningOf('key 1')).toBe(4)
  })
})

/** A limit is changed while a claim has taken one of its slots and has not committed. */
const changeWhileClaiming = async () => {
  await meetKeys(1)
  await enqueue('key 1', 3)
  const worker = await workByHand(database, ['keyed'])
  const [claiming, changes] = [await begin(), await begin()]
  await worker.claim(1, claiming)
  const changed = underWay(changes.query('select longshore.register_tasks($1)', [factsOf(1)]))
  await Promise.race([changed, waitsForLock(database, changes)])
  await claiming.query('commit')
  await changed
  await changes.query('commit')
  while ((await nextPage())?.task) await worker.claim(1)
}

const guards: Guard[] = [
  {
    rule: 'a page leaves a limit alone of which a claim holds a slot group',
    without: { name: 'change_key_limits', guard: 'all-groups', replacement: 'true' },
    happens: changeWhileClaiming,
    tells: /^5: .* held by 1 running jobs|used_fits/m,
  },
  {
    rule: 'a page holds the slot groups that it counts',
    without: { name: 'change_key_limits', guard: 'group-locks' },
    happens: changeWhileClaiming,
    tells: /^5: .* held by 1 running jobs|used_fits/m,
  },
]

describe('without its guard', () => {
  it.each(byRule(guards))('[X12] [L6] %s', (_, guard) => check(guard))
})
