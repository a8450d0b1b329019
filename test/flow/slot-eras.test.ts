/**
 * The slot groups of a limit move to another era, so that claims need not pass over versions which Postgres cannot remove. No slot is lost
 * or gained by that, whichever transaction comes first.
 */
import { beforeAll, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { byRule, type Guard, underWay, useGuards } from '../support/guards.ts'
import { waitsForLock } from '../support/locks.ts'
import { eventually } from '../support/signals.ts'
import { weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin, barrier } = useGuards(database, deployment)
const BARRIER = 4719
const limited = defineTask<number>({ name: 'limited', concurrency: 4 })
const keyed = defineTask<number>({ name: 'keyed', concurrency: 20, concurrencyPerKey: 2 })
/** With it a worker has two lanes, so that slots are freed and taken again, and do not pass on. */
const other = defineTask<number>({ name: 'other' })

const RENEW = 'select longshore.renew_slot_groups(array(select id from longshore.limits)) as ids'
const renew = async (client?: TestClient): Promise<number[]> =>
  ((client ? (await client.query(RENEW)).rows : await database.rows(RENEW))[0] as { ids: number[] }).ids
const enqueue = (jobs: number) =>
  deployment.producer({ tasks: [limited, other] }).enqueueMany(
    limited,
    Array.from({ length: jobs }, (_, n) => n),
  )
const worker = () => workByHand(database, ['limited', 'other'])
const groups = () =>
  database.rows<{ era: number; number: number; capacity: number; used: number; is_draining: boolean }>(
    'select limit_id, era, number, capacity, used, is_draining from longshore.slot_groups order by limit_id, number',
  )
const eras = async () => [...new Set((await groups()).map(({ era }) => era))]
const used = async () => (await groups()).reduce((sum, group) => sum + group.used, 0)

beforeAll(() =>
  database.rows(`
    create function public.stands_at(p_lock int) returns boolean language plpgsql set lock_timeout = 0 as $$
    begin
      perform pg_advisory_xact_lock_shared(p_lock);
      return true;
    end $$`),
)

describe('limits that move to their next era', () => {
  it('[X12] [L5] keep what is used, and of how many; what is claimed and settled afterwards is counted there', async () => {
    await enqueue(6)
    const jobs = await deployment
      .producer({ tasks: [keyed] })
      .enqueueMany(keyed, [1, 2, 3], { concurrencyKey: 'k' })
    const hand = await workByHand(database, ['limited', 'keyed'])
    const runs = await hand.claim(20)
    expect(runs).toHaveLength(6)
    const before = await groups()
    expect(await renew()).toHaveLength(2 + 1)
    expect(await groups()).toEqual(before.map(group => ({ ...group, era: 1 })))
    expect(await deployment.violations()).toEqual([])
    await hand.settle(runs.map(settling))
    expect(await used()).toBe(0)
    expect(await hand.claim(20)).toHaveLength(6 + jobs.length - runs.length)
    expect(await deployment.violations()).toEqual([])
    expect(await eras()).toEqual([1])
  })

  it('[X12] [L5] are lowered, raised, removed and set again there', async () => {
    await enqueue(10)
    const hand = await worker()
    const runs = await hand.claim(4)
    for (const [concurrency, running] of [
      [2, 4],
      [7, 7],
      [undefined, 10],
      [3, 10],
      [80, 10],
    ]) {
      await renew()
      await database.rows('select longshore.register_tasks($1)', [
        JSON.stringify([{ name: 'limited', queue: 'default', tag: 'default', maxAttempts: 3, concurrency }]),
      ])
      for (let call = 0; call < 3; call++) runs.push(...(await hand.claim(10)))
      expect([concurrency, runs.length]).toEqual([concurrency, running])
      expect(await eras()).toHaveLength(1)
      expect(await deployment.violations()).toEqual([])
    }
    expect((await eras())[0]).toBeGreaterThan(2)
    await hand.settle(runs.map(settling))
    expect(await used()).toBe(0)
  })

  it('[X12] [L5] are repaired there', async () => {
    await enqueue(2)
    await (await worker()).claim(2)
    await renew()
    await database.rows('update longshore.slot_groups set era = 0 where number = 1')
    expect(await deployment.violations()).not.toEqual([])
    await database.rows("select longshore.repair_limit('limited', '')")
    expect(await eras()).toEqual([1])
    expect(await deployment.violations()).toEqual([])
  })
})

describe('a renewal beside a claim', () => {
  it('[X12] [L5] the claim first: its limit is passed over', async () => {
    await enqueue(6)
    const hand = await worker()
    const claiming = await begin()
    expect(await hand.claim(1, claiming)).toHaveLength(1)
    expect(await renew()).toEqual([])
    await claiming.query('commit')
    expect(await renew()).toHaveLength(1)
    expect(await hand.claim(6)).toHaveLength(3)
    expect(await used()).toBe(4)
  })

  it('[X12] [L5] the renewal first: the claim does not wait, and looks again', async () => {
    await enqueue(6)
    const hand = await worker()
    const renewing = await begin()
    expect(await renew(renewing)).toHaveLength(1)
    expect(await hand.answer(1)).toBe('busy')
    await renewing.query('commit')
    expect(await hand.claim(6)).toHaveLength(4)
    expect([await used(), await eras()]).toEqual([4, [1]])
  })

  it('[X12] [L5] a claim that has read the last era takes slots of the next one', async () => {
    await enqueue(6)
    const hand = await worker()
    const claiming = await begin()
    const standing = {
      name: 'take_slots_of_each',
      point: 'reading',
      insertion: `and public.stands_at(${BARRIER})`,
    }
    await weakened(database, [standing], async () => {
      const gate = await barrier(BARRIER)
      const claimed = underWay(hand.claim(1, claiming))
      await waitsForLock(database, claiming)
      expect(await renew()).toHaveLength(1)
      await gate.open()
      expect(await claimed).toHaveLength(1)
      await claiming.query('commit')
    })
    expect([await used(), await eras()]).toEqual([1, [1]])
  })
})

/** A settle waits for a slot group that is being renewed. Another limit, with a higher id, is not renewed. */
const settleWhileRenewing = async () => {
  await enqueue(2)
  await deployment.producer({ tasks: [keyed] }).enqueue(keyed, 1)
  const hand = await workByHand(database, ['limited', 'keyed'])
  const runs = await hand.claim(3)
  const [renewing, settles] = [await begin(), await begin()]
  await renewing.query(
    "select longshore.renew_slot_groups(array(select id from longshore.limits where task = 'limited'))",
  )
  const settled = underWay(hand.settle(runs.map(settling), settles))
  await waitsForLock(database, settles)
  await renewing.query('commit')
  await settled
  await settles.query('commit')
}

describe('a renewal beside a settle', () => {
  it('[X12] [L5] the settle first: its limit is passed over', async () => {
    await enqueue(2)
    const hand = await worker()
    const [run] = await hand.claim(1)
    const settles = await begin()
    await hand.settle([settling(run as Claimed)], settles)
    expect(await renew()).toEqual([])
    await settles.query('commit')
    expect(await renew()).toHaveLength(1)
    expect(await used()).toBe(0)
  })

  it('[X12] [L5] the renewal first: the settle gives its slots back to the next era', async () => {
    await settleWhileRenewing()
    expect(await used()).toBe(0)
    expect(await deployment.violations()).toEqual([])
  })

  it('[X12] [L5] a settle that waits while its limit is renewed twice gives them back too', async () => {
    await enqueue(2)
    const hand = await worker()
    const runs = await hand.claim(2)
    const [holder, settles] = [await begin(), await begin()]
    const waits = { name: 'give_back_slots', point: 'reading', insertion: `and public.stands_at(${BARRIER})` }
    await weakened(database, [waits], async () => {
      const gate = await barrier(BARRIER)
      const settled = underWay(hand.settle(runs.map(settling), settles))
      await waitsForLock(database, settles)
      expect(await renew(holder)).toHaveLength(1)
      await holder.query('commit')
      expect(await renew()).toHaveLength(1)
      await gate.open()
      await settled
      await settles.query('commit')
    })
    expect([await used(), await eras()]).toEqual([0, [2]])
  })
})

/** A renewal while a claim has taken a slot and has not committed. */
const renewWhileClaiming = async () => {
  await enqueue(3)
  const hand = await worker()
  const claiming = await begin()
  await hand.claim(1, claiming)
  await renew()
  await claiming.query('commit')
}

const guards: Guard[] = [
  {
    rule: 'who gives slots back comes to the era that a limit has moved to meanwhile',
    without: { name: 'give_back_slots', guard: 'or-later', replacement: '=' },
    happens: settleWhileRenewing,
    tells: /^5: .* used 1, held by 0 running jobs/m,
  },
  {
    rule: 'a renewal does not wait for a claim: it leaves a limit alone of which the claim holds a slot group',
    without: { name: 'renew_slot_groups', guard: 'all-groups', replacement: 'true' },
    happens: renewWhileClaiming,
    tells: /lock timeout/,
  },
  {
    rule: 'a renewal holds the slot groups that it counts',
    without: { name: 'renew_slot_groups', guard: 'group-locks' },
    happens: renewWhileClaiming,
    tells: /lock timeout/,
  },
]

describe('without its guard', () => {
  it.each(byRule(guards))('[X12] [L5] %s', (_, guard) => check(guard))
})

interface Look {
  seen: string
  renewed: number
  waiting: number[]
}
const look = async (seen: number | string | null, waiting: number[] = []) =>
  (await database.rows<Look>('select * from longshore.renew_limits($1, $2)', [seen, waiting]))[0] as Look
const note = (limits: string) =>
  database.rows(
    `insert into longshore.limit_uses (limits) select array_agg(id) from longshore.limits where ${limits}`,
  )

describe('the leader', () => {
  it('[X12] renews the limits that are used most, when rows have moved, and no more than have moved', async () => {
    await enqueue(1)
    await deployment.producer({ tasks: [keyed] }).enqueue(keyed, 1)
    const { seen } = await look(null)
    await note('true')
    expect(await look(seen)).toEqual({ seen, renewed: 0, waiting: [] })
    // What was noted then is gone.
    expect(await look(Number(seen) - 1000)).toMatchObject({ renewed: 0, waiting: [] })
    await note('true')
    await note("task = 'limited'")
    const next = await look(Number(seen) - 1000)
    expect(next).toEqual({ seen: String(Number(seen) + 4 + 20), renewed: 2, waiting: [] })
    expect(await eras()).toEqual([1])
    await note('true')
    await note("task = 'limited'")
    await database.rows('select longshore.renew_limits($1, p_least => 10)', [Number(seen) - 10])
    expect((await groups()).filter(({ era }) => era === 2)).toHaveLength(4)
  })

  it('[X12] comes back for a limit that was held', async () => {
    await enqueue(1)
    const hand = await worker()
    const claiming = await begin()
    await hand.claim(1, claiming)
    await database.rows('delete from longshore.limit_uses')
    await note('true')
    const held = await look(-1000)
    expect(held.renewed).toBe(0)
    expect(held.waiting).toHaveLength(1)
    await claiming.query('commit')
    expect(await look(held.seen, held.waiting)).toMatchObject({ renewed: 1, waiting: [] })
    expect([await used(), await eras()]).toEqual([1, [1]])
  })

  it('[X12] finds out when Postgres cannot remove old versions, and claims go on', async () => {
    await enqueue(1)
    await deployment.worker({ handlers: [other.handle(() => undefined)] })
    await note('true')
    await eventually('it has looked once', async () => {
      return (await database.rows('select from longshore.limit_uses')).length === 0
    })
    const client = await database.connect()
    await eventually('it has renewed the limit', async () => {
      await note('true')
      // In one transaction, which cannot remove its own versions.
      await client.query(
        `do $$ begin for n in 1..300 loop update longshore.slot_groups set used = used; end loop; end $$`,
      )
      return ((await eras())[0] as number) > 0
    })
    await client.end()
    expect(await (await workByHand(database, ['limited'])).claim(1)).toHaveLength(1)
  })
})
