/**
 * Limits of concurrency keys that are not used any more are forgotten, a page at a time, and made anew when their key comes back. Whichever
 * transaction comes first, no slot is lost and no more jobs run than a limit allows.
 */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { byRule, type Guard, underWay, useGuards } from '../support/guards.ts'
import { waitsForLock } from '../support/locks.ts'
import { eventually } from '../support/signals.ts'
import { pauseAt, type Weakness, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin, barrier } = useGuards(database, deployment)
const [FOUND, HELD, CLAIM] = [8801, 8802, 8803]
const keyed = defineTask<number>({ name: 'keyed', concurrency: 20, concurrencyPerKey: 2 })
const plain = defineTask<number>({ name: 'plain' })

interface Page {
  forgotten: number
  is_done: boolean
}
const FORGET = 'select * from longshore.forget_limits(0)'
/** From now on everything that was committed counts as not used for long. */
const grow = () =>
  database.rows(
    'update longshore.limit_looks set done_to = 0, idle_since = pg_snapshot_xmax(pg_current_snapshot())',
  )
const forget = async (): Promise<Page> => {
  await grow()
  return (await database.rows<Page>(FORGET))[0] as Page
}
const enqueue = (key: string, jobs = 1) =>
  deployment.producer({ tasks: [keyed, plain] }).enqueueMany(
    keyed,
    Array.from({ length: jobs }, (_, n) => n),
    { concurrencyKey: key },
  )
const worker = () => workByHand(database, ['keyed', 'plain'])
/** Its limit is there, and nothing of it is left to do. */
const meet = async (...keys: string[]) => {
  const hand = await worker()
  for (const key of keys) await enqueue(key)
  const runs = await hand.claim(10)
  await hand.settle(runs.map(settling))
  await hand.claim(1)
  return hand
}
const limits = async () =>
  (await database.rows<{ key: string }>("select key from longshore.limits where key <> '' order by key")).map(
    ({ key }) => key,
  )
const used = async () =>
  (await database.rows<{ used: number }>('select sum(used)::int as used from longshore.slot_groups'))[0]?.used
const factsOf = (perKey?: number, name = 'keyed') =>
  JSON.stringify([
    { name, queue: 'default', tag: 'default', maxAttempts: 3, concurrency: 20, concurrencyPerKey: perKey },
  ])
const register = (perKey?: number) => database.rows('select longshore.register_tasks($1)', [factsOf(perKey)])

/** Where forgetting stops, if a barrier is held there. */
const STOPS: Weakness[] = [
  { name: 'forget_limits', point: 'found', insertion: pauseAt(FOUND) },
  { name: 'forget_limits', point: 'held', insertion: pauseAt(HELD) },
]
const standsAt = (client: TestClient, lock: number) =>
  eventually(`it stands at ${lock}`, async () => {
    const rows = await database.rows(
      "select from pg_locks where locktype = 'advisory' and objid = $1 and pid = $2 and not granted",
      [lock, client.backendPid],
    )
    return rows.length > 0
  })

interface Stages {
  /** It has read which limits are old. */
  found?: () => Promise<unknown>
  /** It holds their slot groups. */
  held?: () => Promise<unknown>
  /** It has done its work and has not committed. */
  done?: () => Promise<unknown>
}

/** Forgets in a transaction, while something else happens at some of its stages. */
const forgetAround = async ({ found, held, done }: Stages): Promise<number> => {
  await grow()
  const stops = [
    { stage: found, lock: FOUND },
    { stage: held, lock: HELD },
  ].filter(({ stage }) => stage)
  const gates = new Map<number, Awaited<ReturnType<typeof barrier>>>()
  for (const { lock } of stops) gates.set(lock, await barrier(lock))
  const client = await begin()
  const forgetting = underWay(client.query(FORGET))
  for (const { stage, lock } of stops) {
    await standsAt(client, lock)
    await stage?.()
    await gates.get(lock)?.open()
  }
  const { rows } = await forgetting
  await done?.()
  await client.query('commit')
  return (rows[0] as Page).forgotten
}
const withStops = <T>(work: () => Promise<T>, more: Weakness[] = []) =>
  weakened(database, [...STOPS, ...more], work)

/** A call that stops where this barrier is, and is let go on. */
const callUpTo = async <T>(lock: number, call: (client: TestClient) => Promise<T>) => {
  const gate = await barrier(lock)
  const client = await begin()
  const answer = underWay(call(client))
  await standsAt(client, lock)
  return async () => {
    await gate.open()
    const said = await answer
    await client.query('commit')
    return said
  }
}

describe('a limit of a key', () => {
  it('[X12] [L6] is forgotten with its slots when it was not used between two looks; those of tasks stay', async () => {
    await meet('a', 'b')
    await database.rows('update longshore.limit_looks set done_to = null, marked = null')
    const look = async (idleMs: number) =>
      (await database.rows<Page>('select * from longshore.forget_limits($1)', [idleMs]))[0] as Page
    await database.rows("update longshore.limit_looks set marked_at = '-infinity'")
    expect(await look(3_600_000)).toEqual({ forgotten: 0, is_done: true })
    // An hour has not gone by.
    expect(await look(3_600_000)).toEqual({ forgotten: 0, is_done: true })
    expect(await limits()).toEqual(['a', 'b'])
    await meet('b')
    expect(await look(0)).toEqual({ forgotten: 1, is_done: true })
    expect(await limits()).toEqual(['b'])
    expect(await look(0)).toEqual({ forgotten: 1, is_done: true })
    expect(await limits()).toEqual([])
    expect(await database.rows('select key, capacity from longshore.limits')).toEqual([
      { key: '', capacity: 20 },
    ])
    expect(
      await database.rows(
        'select from longshore.slot_groups where limit_id not in (select id from longshore.limits)',
      ),
    ).toEqual([])
  })

  it('[X12] [L6] stays while a job of the key runs or is ready, or the limit is full', async () => {
    const hand = await worker()
    await enqueue('runs')
    await enqueue('full', 3)
    const runs = await hand.claim(10)
    expect(runs).toHaveLength(3)
    await hand.claim(10)
    await meet('ready')
    await enqueue('ready')
    expect(await forget()).toEqual({ forgotten: 0, is_done: true })
    expect(await limits()).toEqual(['full', 'ready', 'runs'])
  })

  it('[X12] [L1] [L5] is made anew when the key comes back, and holds as before', async () => {
    const hand = await meet('a')
    expect(await forget()).toMatchObject({ forgotten: 1 })
    await enqueue('a', 5)
    const runs = await hand.claim(10)
    expect(runs).toHaveLength(2)
    expect(await hand.claim(10)).toEqual([])
    expect(await used()).toBe(4)
    await hand.settle(runs.map(settling))
    expect(await hand.claim(10)).toHaveLength(2)
    expect(await deployment.violations()).toEqual([])
  })

  it('[X12] [L6] is forgotten when it was removed and what ran under it has ended; so is that of a task', async () => {
    const hand = await worker()
    await enqueue('a')
    const runs = await hand.claim(1)
    await database.rows('select longshore.register_tasks($1)', [
      JSON.stringify([{ name: 'keyed', queue: 'default', tag: 'default', maxAttempts: 3 }]),
    ])
    expect(await forget()).toMatchObject({ forgotten: 0 })
    await hand.settle(runs.map(settling))
    expect(await forget()).toMatchObject({ forgotten: 2 })
    expect(await database.rows('select from longshore.limits')).toEqual([])
    await register(1)
    await enqueue('a', 3)
    expect(await hand.claim(10)).toHaveLength(1)
  })

  it('[X12] is looked at in pages; the next leader goes on where the last one was', async () => {
    await register(2)
    await database.rows(
      `with made as (
         insert into longshore.limits (task, key, capacity)
         select 'keyed', 'key ' || n, 2 from generate_series(1, 1200) n returning id
       )
       insert into longshore.slot_groups (limit_id, number, capacity)
       select m.id, s.number, s.capacity from made m, longshore.spread_slots(2) s`,
    )
    await grow()
    const pages: Page[] = []
    do pages.push((await database.rows<Page>(FORGET))[0] as Page)
    while (!pages.at(-1)?.is_done)
    // The first holds the limit of the task.
    expect(pages).toEqual([
      { forgotten: 499, is_done: false },
      { forgotten: 500, is_done: false },
      { forgotten: 201, is_done: true },
    ])
    expect(await limits()).toEqual([])
  })

  it('[X12] is forgotten by the leader, and nothing is on a server that this database was restored to', async () => {
    await meet('a')
    await database.rows(
      "update longshore.limit_looks set done_to = null, marked = '9000000000000', marked_at = '-infinity'",
    )
    expect((await database.rows<Page>(FORGET))[0]).toEqual({ forgotten: 0, is_done: true })
    expect(await limits()).toEqual(['a'])
    await database.rows("update longshore.limit_looks set marked_at = '-infinity'")
    await deployment.worker({ handlers: [plain.handle(() => undefined)] })
    await eventually('it is forgotten', async () => (await limits()).length === 0)
  })

  it('[X12] that is forgotten is named to the relay', async () => {
    await meet('a')
    const [limit] = await database.rows<{ id: number }>("select id from longshore.limits where key = 'a'")
    await database.rows("update longshore.settings set dispatch = 'redis'")
    await forget()
    expect(await database.rows('select limits, lanes from longshore.outbox')).toEqual([
      { limits: [limit?.id], lanes: [] },
    ])
  })
})

/** Jobs of a key come back and are claimed by a transaction that has not committed, when it is about to be forgotten. */
const forgetWhileClaiming = async () => {
  const hand = await meet('a')
  const claiming = await begin()
  let isOpen = true
  const end = async () => {
    if (isOpen) await claiming.query('commit')
    isOpen = false
  }
  const forgotten = underWay(
    forgetAround({
      found: async () => {
        await enqueue('a')
        expect(await hand.claim(1, claiming)).toHaveLength(1)
      },
    }),
  )
  // Without its guards it waits for the claim.
  await Promise.race([
    forgotten,
    eventually('it waits for the claim', async () => {
      const rows = await database.rows(
        `select from pg_locks l join pg_stat_activity a on a.pid = l.pid and a.datname = current_database()
         where l.locktype = 'transactionid' and not l.granted`,
      )
      return rows.length > 0
    }),
  ])
  await end()
  return forgotten
}
const claimBetween = async () => {
  const hand = await meet('a')
  return forgetAround({
    found: async () => {
      await enqueue('a')
      expect(await hand.claim(1)).toHaveLength(1)
    },
  })
}

describe('a claim beside forgetting', () => {
  it('[X12] [L5] the claim first, not committed: its limit is passed over', () =>
    withStops(async () => {
      expect(await forgetWhileClaiming()).toBe(0)
      expect([await limits(), await used()]).toEqual([['a'], 2])
      expect(await deployment.violations()).toEqual([])
    }))

  it('[X12] [L5] the claim first, committed between the look and the locks: its limit stays', () =>
    withStops(async () => {
      expect(await claimBetween()).toBe(0)
      expect([await limits(), await used()]).toEqual([['a'], 2])
      expect(await deployment.violations()).toEqual([])
    }))

  it('[X12] [L5] forgetting first: the claim does not wait, and looks again', () =>
    withStops(async () => {
      const hand = await meet('a')
      const forgotten = await forgetAround({
        held: async () => {
          await enqueue('a', 3)
          expect(await hand.answer(1)).toBe('busy')
        },
        done: async () => expect(await hand.answer(1)).toBe('busy'),
      })
      expect(forgotten).toBe(1)
      expect(await hand.claim(10)).toHaveLength(2)
      expect(await deployment.violations()).toEqual([])
    }))

  it('[X12] [L5] a claim that knows the limit by its id finds no slots of it, and looks again', () =>
    withStops(async () => {
      const hand = await meet('a')
      let goOn = async (): Promise<unknown> => undefined
      const forgotten = await forgetAround({
        found: async () => {
          await enqueue('a', 3)
          goOn = await callUpTo(CLAIM, client => hand.answer(1, client))
        },
      })
      expect(forgotten).toBe(1)
      expect(await goOn()).toBe('busy')
      await hand.claim(10)
      expect([await limits(), await used()]).toEqual([['a'], 4])
      expect(await deployment.violations()).toEqual([])
    }, [{ name: 'claim_lanes', point: 'found', insertion: pauseAt(CLAIM) }]))
})

const afterLook = (name: string): Weakness => ({ name, point: 'limits-made', insertion: pauseAt(CLAIM) })
/** The limit of a key goes between a claim's look whether it is there and its look at its room. Then another claim makes it anew. */
const forgetBehind = async (name: 'claim_lanes' | 'claim_these') => {
  const hand = await meet('a')
  let goOn = async (): Promise<unknown> => undefined
  const forgotten = await forgetAround({
    found: async () => {
      await enqueue('a', 3)
      // A job without a key makes it look for limits that are missing.
      await deployment.producer({ tasks: [keyed, plain] }).enqueue(plain, 1)
      goOn = await callUpTo(CLAIM, async client => {
        if (name === 'claim_lanes') return hand.answer(1, client)
        const { rows } = await client.query(
          `select refused from longshore.claim($1, 4, array(select id from longshore.jobs),
             array(select distinct lane from longshore.jobs))`,
          [hand.id],
        )
        return rows[0].refused
      })
    },
  })
  expect(forgotten).toBe(1)
  const answer = String(await goOn())
  for (let call = 0; call < 2; call++) await hand.claim(10)
  return answer
}

describe('the limit of a key that comes back', () => {
  it('[X12] [L1] is forgotten behind a claim that has seen it: the claim looks again', async () => {
    expect(await withStops(() => forgetBehind('claim_lanes'), [afterLook('claim_lanes')])).toBe('busy')
    expect(await deployment.violations()).toEqual([])
    expect(await used()).toBe(4)
  })

  it('[X12] [L1] is forgotten behind a claim of named jobs that has seen it: they are refused as busy', async () => {
    const refused = await withStops(() => forgetBehind('claim_these'), [afterLook('claim_these')])
    expect(refused.split(',').map(job => job.split(' ')[1])).toEqual(['busy', 'busy', 'busy', 'busy'])
    expect(await deployment.violations()).toEqual([])
    expect(await used()).toBe(4)
  })

  it('[X12] [L6] a claim that makes limits of new keys first: nothing is forgotten until it has committed', async () => {
    const hand = await meet('a')
    await enqueue('new')
    const claiming = await begin()
    expect(await hand.claim(1, claiming)).toHaveLength(1)
    expect(await forget()).toEqual({ forgotten: 0, is_done: false })
    await claiming.query('commit')
    expect(await forget()).toEqual({ forgotten: 1, is_done: true })
    expect(await limits()).toEqual(['new'])
  })

  it('[X12] [L6] forgetting first: a claim that meets a new key looks again', () =>
    withStops(async () => {
      const hand = await meet('a')
      const forgotten = await forgetAround({
        held: async () => {
          await enqueue('new')
          expect(await hand.answer(1)).toBe('busy')
        },
      })
      expect(forgotten).toBe(1)
      expect(await hand.claim(1)).toHaveLength(1)
      expect(await limits()).toEqual(['new'])
    }))

  it('[X12] [L6] and that was removed before is made anew, whichever comes first', async () => {
    for (const first of ['claim', 'forgetting']) {
      const hand = await meet('a')
      await register()
      await database.rows("update longshore.tasks set concurrency_per_key = 3 where name = 'keyed'")
      if (first === 'forgetting') expect(await forget()).toMatchObject({ forgotten: 1 })
      await enqueue('a', 9)
      const claiming = await begin()
      const runs = await hand.claim(20, claiming)
      expect(runs).toHaveLength(3)
      expect(await forget()).toMatchObject({ forgotten: 0 })
      await claiming.query('commit')
      expect(await deployment.violations()).toEqual([])
      await deployment.clear()
      await register(2)
    }
  })
})

describe('what frees slots beside forgetting', () => {
  const free = {
    settle: async (hand: Awaited<ReturnType<typeof worker>>, client: TestClient, runs: Claimed[]) => {
      await hand.settle(runs.map(settling), client)
    },
    rescue: async (hand: Awaited<ReturnType<typeof worker>>, client: TestClient) => {
      await client.query(
        "update longshore.workers set expires_at = now() - interval '1 second' where id = $1",
        [hand.id],
      )
      await client.query('select longshore.rescue(3600000, 1000)')
    },
  }
  const calls = Object.entries(free)

  it.each(calls)(
    '[X12] [L5] the %s first: the limit is passed over until it has committed',
    async (_, call) => {
      const hand = await worker()
      await enqueue('a')
      const runs = await hand.claim(1)
      const freeing = await begin()
      await call(hand, freeing, runs)
      expect(await forget()).toMatchObject({ forgotten: 0 })
      await freeing.query('commit')
      expect(await used()).toBe(0)
      await database.rows('select longshore.cancel(array(select id from longshore.jobs))')
      expect(await forget()).toMatchObject({ forgotten: 1 })
    },
  )

  it.each(calls)(
    '[X12] [L5] forgetting holds the slots first: the %s waits, and frees them',
    async (_, call) =>
      withStops(async () => {
        const hand = await meet('a')
        const freeing = await begin()
        let runs: Claimed[] = []
        let freed: Promise<unknown> = Promise.resolve()
        const forgotten = await forgetAround({
          found: async () => {
            await enqueue('a')
            runs = await hand.claim(1)
          },
          held: async () => {
            freed = underWay(call(hand, freeing, runs))
            await waitsForLock(database, freeing)
          },
        })
        expect(forgotten).toBe(0)
        await freed
        await freeing.query('commit')
        expect([await limits(), await used()]).toEqual([['a'], 0])
        expect(await deployment.violations()).toEqual([])
      }),
  )
})

describe('a change or a renewal of limits beside forgetting', () => {
  it('[X12] [L6] the change first: nothing is forgotten until it has committed', async () => {
    await meet('a')
    const changes = await begin()
    await changes.query('select longshore.register_tasks($1)', [factsOf(4)])
    expect(await forget()).toEqual({ forgotten: 0, is_done: false })
    await changes.query('commit')
    expect(await forget()).toEqual({ forgotten: 1, is_done: true })
    expect(await deployment.violations()).toEqual([])
  })

  it('[X12] [L6] forgetting first: the change waits for it, and the key gets the new limit when it comes back', () =>
    withStops(async () => {
      const hand = await meet('a', 'b')
      const changes = await begin()
      let changed: Promise<unknown> = Promise.resolve()
      const forgotten = await forgetAround({
        held: async () => {
          await changes.query("set lock_timeout = '10s'")
          changed = underWay(changes.query('select longshore.register_tasks($1)', [factsOf(4)]))
          await waitsForLock(database, changes)
        },
      })
      expect(forgotten).toBe(2)
      await changed
      await changes.query('commit')
      await enqueue('a', 9)
      expect(await hand.claim(20)).toHaveLength(4)
      expect(await deployment.violations()).toEqual([])
    }, [{ name: 'hold_limits', setting: 'lock_timeout', value: '10s' }]))

  it('[X12] [L5] a renewal first, not committed: its limits are passed over; committed, they are forgotten in the next era', async () => {
    await meet('a')
    const renewing = await begin()
    await renewing.query('select longshore.renew_slot_groups(array(select id from longshore.limits))')
    expect(await forget()).toMatchObject({ forgotten: 0 })
    await renewing.query('commit')
    expect(await forget()).toMatchObject({ forgotten: 1 })
    expect(await deployment.violations()).toEqual([])
  })

  it('[X12] [L5] a renewal between the look and the locks: the limit is forgotten all the same', () =>
    withStops(async () => {
      await meet('a')
      const forgotten = await forgetAround({
        found: () =>
          database.rows('select longshore.renew_slot_groups(array(select id from longshore.limits))'),
      })
      expect([forgotten, await limits()]).toEqual([1, []])
      expect(await deployment.violations()).toEqual([])
    }))

  it('[X12] [L5] forgetting first: the renewal passes its limits over', () =>
    withStops(async () => {
      await meet('a')
      const [limit] = await database.rows<{ id: number }>("select id from longshore.limits where key = 'a'")
      const renew = async () =>
        (
          (await database.rows('select longshore.renew_slot_groups($1) as ids', [[limit?.id]])) as {
            ids: number[]
          }[]
        )[0]?.ids
      const forgotten = await forgetAround({ held: async () => expect(await renew()).toEqual([]) })
      expect(forgotten).toBe(1)
      expect(await renew()).toEqual([])
      expect(await deployment.violations()).toEqual([])
    }))
})

/** A limit is forgotten while it is made anew from what runs. */
const forgetWhileRepairing = async () => {
  await meet('a')
  const goOn = await callUpTo(CLAIM, client => client.query("select longshore.repair_limit('keyed', 'a')"))
  await forget()
  await goOn()
}

describe('a repair beside forgetting', () => {
  it('[X12] [L5] the repair first: nothing is forgotten until it has committed', () =>
    weakened(
      database,
      [{ name: 'repair_limit', point: 'limit-read', insertion: pauseAt(CLAIM) }],
      async () => {
        await forgetWhileRepairing()
        expect(await limits()).toEqual(['a'])
        expect(await deployment.violations()).toEqual([])
      },
    ))
})

const patient: Weakness = { name: 'forget_limits', setting: 'lock_timeout', value: '30s' }
const guards: Guard[] = [
  {
    rule: 'a limit is left alone of which a claim holds a slot group',
    given: [...STOPS, patient],
    without: { name: 'forget_limits', guard: 'all-groups', replacement: 'true' },
    happens: forgetWhileClaiming,
    tells: /^5: .* it does not exist, held by 1 running jobs/m,
  },
  {
    rule: 'forgetting holds the slot groups that it counts',
    given: [...STOPS, patient],
    without: { name: 'forget_limits', guard: 'group-locks' },
    happens: forgetWhileClaiming,
    tells: /^5: .* it does not exist, held by 1 running jobs/m,
  },
  {
    rule: 'forgetting looks again at what is used when it holds the slot groups',
    given: STOPS,
    without: { name: 'forget_limits', guard: 'none-used' },
    happens: claimBetween,
    tells: /^5: .* it does not exist, held by 1 running jobs/m,
  },
  {
    rule: 'limits are not forgotten while they are repaired',
    given: [{ name: 'repair_limit', point: 'limit-read', insertion: pauseAt(CLAIM) }],
    without: { name: 'forget_limits', guard: 'limits-lock' },
    happens: forgetWhileRepairing,
    tells: /^5: .* which does not exist/m,
  },
  {
    rule: 'nothing is claimed of a key whose limit was forgotten behind the claim',
    given: [...STOPS, afterLook('claim_lanes')],
    without: { name: 'limit_rooms', guard: 'known-limit', replacement: 'false' },
    happens: async () => void (await forgetBehind('claim_lanes')),
    tells: /^5: .* runs without a slot of limit/m,
  },
  {
    rule: 'none of the named jobs of a key is claimed whose limit was forgotten behind the claim',
    given: [...STOPS, afterLook('claim_these')],
    without: { name: 'claim_these', guard: 'known-limit', replacement: 'false' },
    happens: async () => void (await forgetBehind('claim_these')),
    tells: /^5: .* runs without a slot of limit/m,
  },
  {
    rule: 'the relay is told of limits that are forgotten',
    without: { name: 'forget_limits', guard: 'tell-relay' },
    happens: async () => {
      await meet('a')
      await database.rows("update longshore.settings set dispatch = 'redis'")
      await forget()
      const rows = await database.rows('delete from longshore.outbox returning limits')
      return rows.length === 1 ? undefined : 'no outbox row names it'
    },
    tells: /no outbox row names it/,
  },
]

describe('without its guard', () => {
  it.each(byRule(guards))('[X12] [L5] %s', (_, guard) => check(guard))
})

describe('lanes with keys that claims are told of', () => {
  const heads = async () =>
    (
      await database.rows<{ key: string }>(
        'select l.concurrency_key as key from longshore.lane_heads h join longshore.lanes l on l.id = h.lane order by 1',
      )
    ).map(({ key }) => key)
  const forgetHeads = async () =>
    (await database.rows<{ last: string | null }>('select longshore.forget_heads(0)::text as last'))[0]?.last

  it('[X12] are forgotten when they have no ready job, and known again with the next one', async () => {
    const jobs = [await enqueue('a'), await enqueue('b')].flat()
    expect(await heads()).toEqual(['a', 'b'])
    await database.rows('select longshore.cancel(array[$1]::uuid[])', [jobs[0]?.id])
    expect(await forgetHeads()).toBeNull()
    expect(await heads()).toEqual(['b'])
    await enqueue('a')
    expect(await heads()).toEqual(['a', 'b'])
    expect(await deployment.violations()).toEqual([])
  })

  it('[X12] stay while a transaction relies on them that has not committed', async () => {
    const [job] = await enqueue('a')
    await database.rows('select longshore.cancel(array[$1]::uuid[])', [job?.id])
    const enqueues = await begin()
    await enqueues.query(`select longshore.enqueue('keyed', '1', '{"concurrencyKey": "a"}')`)
    await forgetHeads()
    await enqueues.query('commit')
    expect(await heads()).toEqual(['a'])
    expect(await deployment.violations()).toEqual([])
  })
})
