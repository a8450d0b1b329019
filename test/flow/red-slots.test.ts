/** The red side of limits: slots are taken and freed in the same transaction as the run, whichever way it begins and ends. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { byRule, type Guard, underWay, useGuards } from '../support/guards.ts'
import { waitsForLock } from '../support/locks.ts'
import { pauseAt } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin, barrier } = useGuards(database, deployment)
const limited = defineTask({ name: 'limited', concurrency: 2 })
const keyed = defineTask({ name: 'keyed', concurrency: 2, concurrencyPerKey: 1 })
const plain = defineTask({ name: 'plain' })
const BARRIER = 84
/** The first to come waits at the barrier, the next one passes. */
const FIRST_WAITS = `if pg_try_advisory_xact_lock(${BARRIER}, 1) then ${pauseAt(BARRIER)} end if;`
const BY_NOBODY = /^5: .* used 1, held by 0 running jobs/m

const enqueue = (jobs: number) =>
  deployment.producer({ tasks: [limited] }).enqueueMany(
    limited,
    Array.from({ length: jobs }, (_, n) => n),
  )
const running = async (jobs = 1) => {
  await enqueue(jobs)
  const worker = await workByHand(database, ['limited'])
  const claims: Claimed[] = []
  for (let calls = 0; calls < jobs; calls++) claims.push(...(await worker.claim(1)))
  return { worker, claims, first: claims[0] as Claimed }
}
const hold = async (id: string) => {
  const holder = await begin()
  await holder.query('select from longshore.jobs where id = $1 for update', [id])
}
const CLAIM_THESE = 'select * from longshore.claim($1, 5, $2, array(select id from longshore.lanes))'
const claimThese = async (worker: number, ids: string[], client?: TestClient) =>
  client ? client.query(CLAIM_THESE, [worker, ids]) : database.rows(CLAIM_THESE, [worker, ids])
const SETTLE_AND_CLAIM =
  'select * from longshore.settle_and_claim($1, $2, $3, null, null, $4, $5::uuid[], array(select id from longshore.lanes))'
/** What comes next is claimed in the same call. */
const settleAndClaim = (worker: number, run: Claimed, limit: number, these: string[] | null = null) =>
  database.rows(SETTLE_AND_CLAIM, [worker, [run.id], [run.lease_token], limit, these])

const taken: Guard[] = [
  {
    rule: 'a run from a lane under a limit names its slot',
    without: { name: 'hand_over', guard: 'slot', replacement: 'null' },
    happens: async () => void (await running()),
    tells: BY_NOBODY,
  },
  {
    rule: 'a run from several lanes names its slot',
    without: { name: 'hand_over', guard: 'slot', replacement: 'null' },
    happens: async () => {
      await deployment.producer({ tasks: [keyed] }).enqueue(keyed, 1, { concurrencyKey: 'k' })
      await (await workByHand(database, ['keyed'])).claim(1)
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a run with a key names the slot of its key',
    without: { name: 'hand_over', guard: 'key-slot', replacement: 'null' },
    happens: async () => {
      await deployment.producer({ tasks: [keyed] }).enqueue(keyed, 1, { concurrencyKey: 'k' })
      await (await workByHand(database, ['keyed'])).claim(1)
    },
    tells: /^5: .* it runs without a slot of limit/m,
  },
  {
    rule: 'a run that Redis named names its slot',
    without: { name: 'hand_over', guard: 'slot', replacement: 'null' },
    happens: async () => {
      const [job] = await enqueue(1)
      await claimThese((await workByHand(database, ['limited'])).id, [job?.id as string])
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a claim counts the slots that it takes',
    without: { name: 'take_slots_of_each', guard: 'count', replacement: 'g.used' },
    happens: async () => void (await running()),
    tells: /^5: .* used 0, held by 1 running jobs/m,
  },
  {
    rule: 'a claim counts the slots of groups that it looks at later',
    without: { name: 'take_slots', guard: 'count', replacement: 'g.used' },
    happens: async () => {
      // Groups of two: the first two have one slot left each, so a claim of four needs a third.
      const hundred = defineTask({ name: 'hundred', concurrency: 100 })
      await deployment.producer({ tasks: [hundred] }).enqueueMany(hundred, [1, 2, 3, 4, 5, 6])
      const worker = await workByHand(database, ['hundred'])
      await worker.claim(1)
      const holder = await begin()
      await holder.query('select from longshore.slot_groups where number = 0 for update')
      await worker.claim(1)
      await holder.query('rollback')
      expect(await worker.claim(4)).toHaveLength(4)
    },
    tells: /^5: .* used 0, held by 2 running jobs/m,
  },
  {
    rule: 'two that take slots at once do not take the last one twice',
    given: [{ name: 'take_slots', point: 'chosen', insertion: FIRST_WAITS }],
    without: { name: 'take_slots', guard: 'group-lock' },
    happens: async () => {
      await running(1) // one slot is left
      const take = 'select longshore.take_slots(id, 1) from longshore.limits'
      const { open } = await barrier(BARRIER)
      const [first, second] = [await begin(), await begin()]
      const taken = underWay(first.query(take))
      await waitsForLock(database, first)
      // It passes the barrier: the first one stands there.
      const took = [await second.query(take)]
      await second.query('commit')
      await open()
      took.push(await taken)
      await first.query('rollback')
      await database.rows('update longshore.slot_groups set used = 1 where number = 0')
      await database.rows('update longshore.slot_groups set used = 0 where number = 1')
      return took.every(({ rows }) => rows[0].take_slots.length > 0) ? 'both have it' : undefined
    },
    tells: /both have it|used_fits/,
  },
  {
    rule: 'two claims at once do not take the last slot twice',
    given: [{ name: 'take_slots_of_each', point: 'chosen', insertion: FIRST_WAITS }],
    without: { name: 'take_slots_of_each', guard: 'group-lock' },
    happens: async () => {
      await running(1) // one slot is left
      await enqueue(2)
      const [one, other] = [await workByHand(database, ['limited']), await workByHand(database, ['limited'])]
      const { open } = await barrier(BARRIER)
      const client = await begin()
      const claimed = underWay(one.claim(1, client))
      await waitsForLock(database, client)
      await other.claim(1)
      await open()
      await claimed
      await client.query('commit')
    },
    tells: /used_fits|held by 2 running jobs/,
  },
  {
    rule: 'two claims of what Redis names do not take the last slot twice',
    given: [
      {
        name: 'take_slots_of_each',
        point: 'chosen',
        insertion: FIRST_WAITS,
      },
    ],
    without: { name: 'take_slots_of_each', guard: 'group-lock' },
    happens: async () => {
      await running(1)
      const jobs = await enqueue(2)
      const [one, other] = [await workByHand(database, ['limited']), await workByHand(database, ['limited'])]
      const { open } = await barrier(BARRIER)
      const client = await begin()
      const claimed = underWay(claimThese(one.id, [jobs[0]?.id as string], client))
      await waitsForLock(database, client)
      await claimThese(other.id, [jobs[1]?.id as string])
      await open()
      await claimed
      await client.query('commit')
    },
    tells: /used_fits|held by 2 running jobs/,
  },
  {
    rule: 'a limit that is first set counts what runs',
    without: {
      name: 'set_limit',
      guard: 'count-running',
      replacement: '0',
    },
    happens: async () => {
      await deployment.producer().enqueue(plain, 1)
      await (await workByHand(database, ['plain'])).claim(1)
      const limited = defineTask<number>({ name: 'plain', concurrency: 2 })
      await deployment.producer({ tasks: [limited] }).enqueue(limited, 2)
    },
    tells: /^5: .* used 0, held by 1 running jobs/m,
  },
]

describe('a slot is taken with the run:', () => {
  it.each(byRule(taken))('[L5] %s', (_, guard) => check(guard))
})

const freed: Guard[] = [
  {
    rule: 'a settle alone frees the slots',
    without: {
      name: 'settle_and_claim',
      guard: 'free-slots',
      replacement: 'false',
    },
    happens: async () => {
      const { worker, first } = await running()
      await worker.settle([settling(first)])
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a settle tells the slots that its runs held',
    without: { name: 'settle', guard: 'tell-slots', replacement: 'false' },
    happens: async () => {
      const { worker, first } = await running()
      await worker.settle([settling(first)])
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a settle tells them where not all is as it should be',
    without: {
      name: 'settle_contended',
      point: 'tell-slots',
      insertion: 'where false',
    },
    happens: async () => {
      const { worker, first } = await running()
      await worker.settle([settling(first), { id: '00000000-0000-7000-8000-000000000000', token: '1' }])
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a failure tells them',
    without: {
      name: 'settle_unsuccessful',
      guard: 'tell-slots',
      replacement: 'false',
    },
    happens: async () => {
      const { worker, first } = await running()
      await worker.settleOthers([{ ...settling(first), outcome: 'failed' }])
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'the end of a job of a group tells them',
    without: {
      name: 'settle_answer',
      guard: 'tell-slots',
      replacement: 'false',
    },
    happens: async () => {
      const producer = deployment.producer({ tasks: [limited] })
      const group = producer.group()
      group.add(limited, 1)
      await group.submit()
      const worker = await workByHand(database, ['limited'])
      const [run] = await worker.claim(1)
      await worker.settleOthers([{ ...settling(run as Claimed), outcome: 'failed' }])
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a completion in a transaction frees them',
    without: {
      name: 'complete',
      guard: 'free-slots',
      replacement: 'false',
    },
    happens: async () => {
      const { worker, first } = await running()
      const tx = await begin()
      await tx.query("select set_config('longshore_run.lease', $1, true)", [first.lease_token])
      await tx.query('select longshore.complete($1, $2, $3, null)', [worker.id, first.id, first.lease_token])
      await tx.query('commit')
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a settle whose claim finds less than it could take frees the rest',
    without: {
      name: 'claim',
      guard: 'free-the-rest',
    },
    happens: async () => {
      const { worker, first } = await running()
      await settleAndClaim(worker.id, first, 1)
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a settle whose worker serves several lanes frees them before its claim',
    without: {
      name: 'claim',
      guard: 'free-held',
    },
    happens: async () => {
      await enqueue(1)
      await deployment.producer().enqueue(plain, 1)
      const worker = await workByHand(database, ['limited', 'plain'])
      const [run] = await worker.claim(1)
      await settleAndClaim(worker.id, run as Claimed, 5)
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a settle whose worker is just being rescued frees them all the same',
    without: {
      name: 'claim',
      guard: 'free-when-busy',
    },
    happens: async () => {
      const { worker, first } = await running()
      const rescuing = await begin()
      await rescuing.query('select pg_advisory_xact_lock(hashtext(\'"longshore".worker\'), $1)', [worker.id])
      await settleAndClaim(worker.id, first, 5)
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a settle whose claim names jobs frees what those do not need',
    without: {
      name: 'claim_these',
      guard: 'free-held',
      replacement: 'null;',
    },
    happens: async () => {
      const { worker, first } = await running()
      await settleAndClaim(worker.id, first, 1, ['00000000-0000-7000-8000-000000000000'])
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a claim gives back the slot of a job that another holds',
    without: { name: 'claim_lanes', guard: 'spare-slots' },
    happens: async () => {
      const [job] = await enqueue(1)
      await hold(job?.id as string)
      await (await workByHand(database, ['limited'])).claim(1)
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'a job under two limits that gets one slot gives it back',
    without: { name: 'assign_slots', guard: 'leftover', replacement: 'false' },
    happens: async () => {
      const producer = deployment.producer({ tasks: [keyed] })
      const jobs = await producer.enqueueMany(keyed, [1, 2], { concurrencyKey: 'k' })
      const worker = await workByHand(database, ['keyed'])
      await claimThese(
        worker.id,
        jobs.map(job => job.id),
      )
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'two that free slots of the same limits in another order do not wait for each other',
    without: {
      name: 'give_back_slots',
      guard: 'order',
      replacement:
        "order by case when current_setting('test.is_other', true) = 'yes' then - f.id else f.id end",
    },
    happens: async () => {
      const second = defineTask({ name: 'second', concurrency: 2 })
      const producer = deployment.producer({ tasks: [limited, second] })
      for (const task of [limited, second]) await producer.enqueue(task, 1)
      await (await workByHand(database, ['limited', 'second'])).claim(2)
      const held = await database.rows<{ lane: number; slot: number }>(
        'select lane, slot from longshore.jobs order by lane',
      )
      const free = (client: TestClient, slots: typeof held) =>
        client.query('select longshore.free_slots($1, $2, array_fill(null::smallint, array[2]))', [
          slots.map(({ lane }) => lane),
          slots.map(({ slot }) => slot),
        ])
      const [holder, one, other] = [await begin(), await begin(), await begin()]
      await holder.query(
        'select from longshore.slot_groups g where g.limit_id = (select min(id) from longshore.limits) for update',
      )
      const freed = underWay(free(one, held))
      await waitsForLock(database, one)
      await other.query("select set_config('test.is_other', 'yes', true)")
      const freedToo = underWay(free(other, held.toReversed()))
      await waitsForLock(database, other)
      await holder.query('commit')
      await freed
      await one.query('rollback')
      await freedToo
    },
    tells: /deadlock/,
  },
]

describe('a slot is freed with the end of the run:', () => {
  it.each(byRule(freed))('[L5] %s', (_, guard) => check(guard))
})

const LOWERED =
  '[{"name": "limited", "queue": "default", "tag": "default", "maxAttempts": 3, "concurrency": 1}]'
/** Two run under a limit that becomes one; one of them ends, and the next is claimed with it. */
const endWhileDraining = async (these: boolean) => {
  const { worker, first } = await running(2)
  const [next] = await enqueue(1)
  await database.rows('select longshore.register_tasks($1)', [LOWERED])
  await settleAndClaim(worker.id, first, 1, these ? [next?.id as string] : null)
  const rows = await database.rows("select from longshore.jobs where state = 'running'")
  if (rows.length > 1) return 'a job started while more ran than may'
}

const changed: Guard[] = [
  {
    rule: 'no slot passes on from one run to the next while a lowered limit drains',
    without: { name: 'claim', guard: 'draining' },
    happens: () => endWhileDraining(false),
    tells: /more ran than may/,
  },
  {
    rule: 'no slot passes on to what Redis names while a lowered limit drains',
    without: { name: 'reuse_slots', guard: 'draining' },
    happens: () => endWhileDraining(true),
    tells: /more ran than may/,
  },
  {
    rule: 'two claims at once do not both take what a draining limit has left',
    given: [{ name: 'assign_slots', setting: 'lock_timeout', value: '30s' }],
    without: {
      name: 'take_draining_slots',
      guard: 'all-groups',
      replacement: '0',
    },
    happens: async () => {
      const four = defineTask({ name: 'limited', concurrency: 4 })
      await deployment.producer({ tasks: [four] }).enqueueMany(
        four,
        Array.from({ length: 6 }, (_, n) => n),
      )
      const [one, other] = [await workByHand(database, ['limited']), await workByHand(database, ['limited'])]
      const runs: Claimed[] = []
      for (let calls = 0; calls < 4; calls++) runs.push(...(await one.claim(1)))
      await database.rows('select longshore.register_tasks($1)', [
        LOWERED.replace('"concurrency": 1', '"concurrency": 2'),
      ])
      await one.settle(runs.slice(1).map(settling))
      const [first, second] = [await begin(), await begin()]
      await one.claim(1, first)
      const claimed = underWay(other.claim(1, second))
      await Promise.race([claimed, waitsForLock(database, second)])
      await first.query('commit')
      await claimed
      await second.query('commit')
    },
    tells: /used_fits/,
  },
  {
    rule: 'a worker that registers while a first limit is set waits for it',
    without: {
      name: 'register_worker',
      guard: 'limits-lock',
    },
    happens: async () => {
      await deployment.producer().enqueue(plain, 1)
      const [setting, registering] = [await begin(), await begin()]
      await setting.query('select longshore.register_tasks($1)', [
        '[{"name": "plain", "queue": "default", "tag": "default", "maxAttempts": 3, "concurrency": 2}]',
      ])
      const registered = underWay(
        registering.query(
          "select longshore.register_worker('new', '{default}', '{plain}', '{default}', '{}', '{c:}', 15000) as id",
        ),
      )
      const isHeld = await Promise.race([
        registered.then(() => false),
        waitsForLock(database, registering).then(() => true),
      ])
      const claim = async () => {
        await registering.query('select longshore.claim($1, 1)', [(await registered).rows[0].id])
        await registering.query('commit')
      }
      if (!isHeld) await claim()
      await setting.query('commit')
      if (isHeld) await claim()
    },
    tells: /^5: .* it runs without a slot of limit/m,
  },
  {
    rule: 'who sets a first limit waits for runs that are just ending',
    without: {
      name: 'hold_limits',
      guard: 'running-locks',
    },
    given: [{ name: 'hold_limits', setting: 'lock_timeout', value: '20s' }],
    happens: async () => {
      await deployment.producer().enqueue(plain, 1)
      const worker = await workByHand(database, ['plain'])
      const [run] = await worker.claim(1)
      const [ending, setting] = [await begin(), await begin()]
      await worker.settle([settling(run as Claimed)], ending)
      const set = underWay(
        setting.query('select longshore.register_tasks($1)', [
          '[{"name": "plain", "queue": "default", "tag": "default", "maxAttempts": 3, "concurrency": 2}]',
        ]),
      )
      await waitsForLock(database, setting)
      await ending.query('commit')
      await set
      await setting.query('commit')
    },
    tells: BY_NOBODY,
  },
  {
    rule: 'two claims do not make the limit of a new key at once',
    without: {
      name: 'make_key_limits',
      guard: 'one-at-a-time',
    },
    happens: async () => {
      const producer = deployment.producer({ tasks: [keyed] })
      await producer.enqueueMany(keyed, [1, 2], { concurrencyKey: 'k' })
      const [one, other] = [await workByHand(database, ['keyed']), await workByHand(database, ['keyed'])]
      const [first, second] = [await begin(), await begin()]
      await one.claim(1, first)
      const claimed = underWay(other.claim(1, second))
      await Promise.race([claimed, waitsForLock(database, second)])
      await first.query('commit')
      await claimed
    },
    tells: /duplicate key/,
  },
  {
    rule: 'a claim does not take a lane off the list that an open enqueue relies on',
    given: [{ name: 'tidy_heads', setting: 'lock_timeout', value: '30s' }],
    without: { name: 'tidy_heads', guard: 'relied-on' },
    happens: async () => {
      const free = defineTask({ name: 'keyed', concurrencyPerKey: 5 })
      const producer = deployment.producer({ tasks: [free] })
      await producer.enqueue(free, 'known', { concurrencyKey: 'k' })
      const worker = await workByHand(database, ['keyed'])
      const [enqueueing, claiming] = [await begin(), await begin()]
      await producer.enqueue(free, 'new', { concurrencyKey: 'k', tx: enqueueing })
      const claimed = underWay(worker.claim(5, claiming))
      await Promise.race([claimed, waitsForLock(database, claiming)])
      await enqueueing.query('commit')
      expect((await claimed).length).toBeLessThan(2)
      await claiming.query('commit')
    },
    tells: /^5: .* no claim would look at it/m,
  },
  {
    rule: 'who opens a limit opens the lanes of its key',
    without: {
      name: 'open_limits',
      guard: 'open-lanes',
    },
    happens: async () => {
      const producer = deployment.producer({ tasks: [keyed] })
      await producer.enqueueMany(keyed, [1, 2], { concurrencyKey: 'k' })
      const worker = await workByHand(database, ['keyed'])
      const [run] = await worker.claim(1)
      await worker.claim(1)
      await worker.settle([settling(run as Claimed)])
    },
    tells: /^5: .* no claim would look at it/m,
  },
]

describe('limits that change under load', () => {
  it.each(byRule(changed))('[L6] %s', (_, guard) => check(guard))
})
