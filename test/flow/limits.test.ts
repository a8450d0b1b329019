import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { counter, eventually } from '../support/signals.ts'
import { pauseAt, type Weakness, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

const groupsOf = (task: string, key = '') =>
  database.rows<{ number: number; capacity: number; used: number; is_draining: boolean }>(
    `select g.number, g.capacity, g.used, g.is_draining from longshore.slot_groups g
     join longshore.limits k on k.id = g.limit_id where k.task = $1 and k.key = $2 order by g.number`,
    [task, key],
  )

const usedOf = async (task: string, key = '') =>
  (await groupsOf(task, key)).reduce((sum, group) => sum + group.used, 0)

/** Tell Postgres of tasks, as a process that starts does. */
const register = (tasks: object[]) => database.rows('select longshore.register_tasks($1)', [factsOf(tasks)])

const factsOf = (tasks: object[]) =>
  JSON.stringify(
    tasks.map(task => ({ queue: 'default', tag: 'default', maxAttempts: 3, maxRescues: 10, ...task })),
  )

describe('slot groups', () => {
  it.each([
    [1, 1, 1],
    [4, 4, 1],
    [50, 50, 1],
    [51, 26, 1],
    [99, 50, 1],
    [100, 50, 2],
    [500, 50, 10],
    [999, 50, 19],
    [1000, 50, 20],
    [1_000_000, 50, 20_000],
  ])(
    '[L2] a limit of %d is spread over %d groups, the last of %d, which add up to it',
    async (limit, groups, last) => {
      const rows = await database.rows<{ capacity: number }>(
        'select capacity from longshore.spread_slots($1) order by number',
        [limit],
      )
      expect(rows).toHaveLength(groups)
      expect(rows.at(-1)?.capacity).toBe(last)
      expect(rows.reduce((sum, row) => sum + row.capacity, 0)).toBe(limit)
    },
  )
})

describe('a claim under a limit', () => {
  it('[L1] hands out no more than the limit, over all workers, and more only when a slot is freed', async () => {
    const task = defineTask({ name: 'few', concurrency: 3 })
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueueMany(task, numbers(10))
    const [a, b] = [await workByHand(database, ['few']), await workByHand(database, ['few'])]
    const first = [
      ...(await a.claim(2)),
      ...(await b.claim(10)),
      ...(await a.claim(10)),
      ...(await b.claim(10)),
    ]
    expect(first.map(job => job.payload)).toEqual([0, 1, 2])
    expect(await usedOf('few')).toBe(3)
    expect(await a.answer(10)).toBe('full')
    const [one] = first
    if (!one) throw new Error('not claimed')
    const owner = (
      await database.rows<{ worker_id: number }>('select worker_id from longshore.jobs where id = $1', [
        one.id,
      ])
    )[0]?.worker_id
    await (owner === a.id ? a : b).settle([settling(one)])
    expect(await usedOf('few')).toBe(2)
  })

  it.each(['failed', 'retry', 'released'])('[L5] frees the slot when a run ends as %s', async outcome => {
    const task = defineTask({ name: 'freed', concurrency: 1, concurrencyPerKey: 1 })
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueue(task, 1, { concurrencyKey: 'k' })
    const worker = await workByHand(database, ['freed'])
    const [job] = await worker.claim(5)
    expect([await usedOf('freed'), await usedOf('freed', 'k')]).toEqual([1, 1])
    await worker.settleOthers([{ id: job?.id, token: job?.lease_token, outcome, delayMs: 1000 }])
    expect([await usedOf('freed'), await usedOf('freed', 'k')]).toEqual([0, 0])
    // Again, after its reply was lost: nothing is freed twice.
    await worker.settleOthers([{ id: job?.id, token: job?.lease_token, outcome, delayMs: 1000 }])
    expect([await usedOf('freed'), await usedOf('freed', 'k')]).toEqual([0, 0])
  })

  it('[L4] passes over limited jobs without a slot, in global order among what can run', async () => {
    const limited = defineTask({ name: 'limited', concurrency: 2 })
    const free = defineTask({ name: 'free' })
    const producer = deployment.producer({ tasks: [limited, free] })
    await producer.enqueueMany(limited, ['a', 'b', 'c', 'd'], { priority: 9 })
    await producer.enqueueMany(free, [1, 2], { priority: 10 })
    await producer.enqueueMany(free, [3, 4])
    const worker = await workByHand(database, ['limited', 'free'])
    const claimed = [...(await worker.claim(10)), ...(await worker.claim(10)), ...(await worker.claim(10))]
    expect(claimed.map(job => job.payload)).toEqual([1, 2, 'a', 'b', 3, 4])
  })

  it('[C7] [L4] goes on in exact order behind what an open claim holds, beside a limited task', async () => {
    const [one, two] = [defineTask({ name: 'one' }), defineTask({ name: 'two' })]
    const limited = defineTask({ name: 'limited', concurrency: 500 })
    const producer = deployment.producer({ tasks: [limited] })
    for (let n = 0; n < 20; n++) {
      const task = [one, two, limited][n % 3] ?? one
      await producer.enqueueMany(task, numbers(50), { priority: (n * 7) % 10 })
    }
    const order = await database.rows<{ id: string }>('select id from longshore.jobs order by score, id')
    const [first, second] = [
      await workByHand(database, ['one', 'two', 'limited']),
      await workByHand(database, ['one', 'two', 'limited']),
    ]
    const tx = await database.connect()
    await tx.query('begin')
    expect((await first.claim(300, tx)).map(job => job.id)).toEqual(order.slice(0, 300).map(row => row.id))
    expect((await second.claim(60)).map(job => job.id)).toEqual(order.slice(300, 360).map(row => row.id))
    await tx.query('rollback')
  })

  it('[L8] gives a job under both limits both slots or none', async () => {
    const task = defineTask({ name: 'both', concurrency: 2, concurrencyPerKey: 1 })
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueueMany(task, ['a1', 'a2', 'a3'], { concurrencyKey: 'a', priority: 2 })
    await producer.enqueueMany(task, ['b1', 'b2'], { concurrencyKey: 'b', priority: 1 })
    await producer.enqueueMany(task, ['c1'], { concurrencyKey: 'c' })
    const worker = await workByHand(database, ['both'])
    const claimed = [...(await worker.claim(10)), ...(await worker.claim(10)), ...(await worker.claim(10))]
    expect(claimed.map(job => job.payload)).toEqual(['a1', 'b1'])
    expect([await usedOf('both'), await usedOf('both', 'a'), await usedOf('both', 'b')]).toEqual([2, 1, 1])
    // c has a slot of its own, but the task has none left.
    expect(await worker.answer(10)).toBe('full')
    expect(await usedOf('both', 'c')).toBe(0)
    const [a1, b1] = claimed
    if (!a1 || !b1) throw new Error('not claimed')
    await worker.settle([settling(b1)])
    expect((await worker.claim(10)).map(job => job.payload)).toEqual(['b2'])
    await worker.settle([settling(a1)])
    expect((await worker.claim(10)).map(job => job.payload)).toEqual(['a2'])
  })

  it('[L8] goes on to other keys behind a job whose key runs out in the same claim', async () => {
    const task = defineTask({ name: 'keys', concurrencyPerKey: 1 })
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueue(task, 'no key 1')
    await producer.enqueue(task, 'a1', { concurrencyKey: 'a' })
    await producer.enqueue(task, 'no key 2')
    // Another lane of the same key: each for itself has room for one.
    await producer.enqueue(task, 'a2', { concurrencyKey: 'a', tag: 'other' })
    await producer.enqueue(task, 'b1', { concurrencyKey: 'b' })
    const worker = await workByHand(database, ['keys'], ['default', 'other'])
    const claimed = await worker.claim(4)
    expect(claimed.map(job => job.payload)).toEqual(['no key 1', 'a1', 'no key 2', 'b1'])
  })

  it('[L8] [D9] finds a job with a key in the lane that it was changed to, beside what is left of it in the former', async () => {
    const task = defineTask({ name: 'keys', concurrencyPerKey: 1 })
    const producer = deployment.producer({ tasks: [task] })
    const ref = await producer.enqueue(task, 'a1', { concurrencyKey: 'a' })
    await producer.change(ref, { constraints: { gpu: 'a100' } })
    // A claim of one reads one head: both lanes have one at the same place.
    const worker = await workByHand(database, ['keys'], ['default'], { gpu: 'a100' })
    expect((await worker.claim(1)).map(job => job.payload)).toEqual(['a1'])
  })

  it('[L8] goes on to the next key behind one that is full and whose lane is known by two places', async () => {
    const task = defineTask({ name: 'keys', concurrencyPerKey: 1 })
    const producer = deployment.producer({ tasks: [task] })
    const at = { runAt: new Date(1_700_000_000_000) }
    for (const payload of ['a1', 'b1', 'a2'])
      await producer.enqueue(task, payload, { ...at, concurrencyKey: payload.charAt(0) })
    const worker = await workByHand(database, ['keys'])
    // The lane of a is known to begin at a2, and then also at a1.
    const [a1] = await worker.claim(1)
    await worker.settleOthers([{ id: a1?.id, token: a1?.lease_token, outcome: 'released' }])
    const other = await workByHand(database, ['keys'], ['other'])
    await producer.enqueue(task, 'a3', { concurrencyKey: 'a', tag: 'other' })
    expect((await other.claim(1)).map(job => job.payload)).toEqual(['a3'])
    expect((await worker.claim(1)).map(job => job.payload)).toEqual(['b1'])
  })

  // Two keys and a claim of two: it reads the head of each, then what stands behind. a1 is not to be had, and b1 stands before a2.
  it.each(['an open enqueue holds its head', 'its first job is held'])(
    '[L8] goes on in a lane with a key while %s',
    async why => {
      const task = defineTask({ name: 'keys', concurrencyPerKey: 5 })
      const producer = deployment.producer({ tasks: [task] })
      for (const [second, payload] of ['a1', 'b1', 'a2'].entries()) {
        const runAt = new Date(1_700_000_000_000 + 1000 * second)
        await producer.enqueue(task, payload, { runAt, concurrencyKey: payload.charAt(0) })
      }
      const worker = await workByHand(database, ['keys'])
      const tx = await database.connect()
      await tx.query('begin')
      if (why === 'its first job is held') {
        await tx.query('select from longshore.jobs where payload = \'"a1"\' for update')
      } else {
        await producer.enqueue(task, 'a3', { concurrencyKey: 'a', tx })
        expect((await worker.claim(1)).map(job => job.payload)).toEqual(['a1'])
      }
      expect((await worker.claim(2)).map(job => job.payload)).toEqual(['b1', 'a2'])
      await tx.query('commit')
    },
  )

  it('[L8] hands out the best jobs of hundreds of keys in order', async () => {
    const task = defineTask({ name: 'keys', concurrencyPerKey: 2 })
    const producer = deployment.producer({ tasks: [task] })
    for (let n = 0; n < 200; n++) {
      await producer.enqueueMany(task, [n, n, n], {
        concurrencyKey: `key ${n}`,
        priority: (n * 7919) % 1000,
      })
    }
    const worker = await workByHand(database, ['keys'])
    const claimed: number[] = []
    for (let call = 0; call < 60; call++)
      claimed.push(...(await worker.claim(20)).map(job => job.payload as number))
    const order = numbers(200).sort((a, b) => ((b * 7919) % 1000) - ((a * 7919) % 1000))
    expect(claimed.filter((n, at) => claimed.indexOf(n) === at)).toEqual(order)
    expect(claimed).toHaveLength(400)
    for (const n of [0, 57, 199]) expect(await usedOf('keys', `key ${n}`)).toBe(2)
    const heads = await database.rows('select from longshore.lane_heads where closed_by is null')
    expect(heads).toEqual([])
  })
})

describe('busy or full', () => {
  it('[L7] answers busy, never full, while somebody holds slot rows, and full when all are held here', async () => {
    const task = defineTask({ name: 'barrier', concurrency: 2 })
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueueMany(task, numbers(5))
    const worker = await workByHand(database, ['barrier'])
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select from longshore.slot_groups for update')
    expect(await worker.answer(5)).toBe('busy')
    expect(await database.rows('select is_full from longshore.limits')).toEqual([{ is_full: false }])
    await tx.query('rollback')
    await worker.claim(1)
    await worker.claim(1)
    // All slots are taken, and somebody is about to free one: nothing is certain.
    await tx.query('begin')
    await tx.query('update longshore.slot_groups set used = used where number = 1')
    expect(await worker.answer(5)).toBe('busy')
    await tx.query('rollback')
    expect(await worker.answer(5)).toBe('full')
    expect(await database.rows('select is_full from longshore.limits')).toEqual([{ is_full: true }])
  })

  /** A claim finds the limit full while the slot's holder settles. Resolves to what can be claimed when both are done. */
  const closeWhileSettling = async (first: 'claim' | 'settle') => {
    const task = defineTask({ name: 'race', concurrency: 1 })
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueueMany(task, numbers(2))
    const [holder, closer] = [await workByHand(database, ['race']), await workByHand(database, ['race'])]
    const [job] = await holder.claim(1)
    if (!job) throw new Error('not claimed')
    const [closing, settles] = [await database.connect(), await database.connect()]
    await closing.query('begin')
    await settles.query('begin')
    if (first === 'claim') {
      await closer.answer(1, closing)
      const settled = holder.settle([settling(job)], settles)
      await Promise.race([settled, waitsForLock(database, settles)])
      await closing.query('commit')
      await settled
      await settles.query('commit')
    } else {
      await holder.settle([settling(job)], settles)
      await closer.answer(1, closing)
      await closing.query('commit')
      await settles.query('commit')
    }
    const claimed = (await closer.claim(1)).length
    await database.rows('delete from longshore.jobs')
    await database.rows('update longshore.slot_groups set used = 0')
    await database.rows('update longshore.limits set is_full = false')
    return claimed
  }

  it('[L7] a slot freed while a claim closes the limit opens it again: the claim first', async () => {
    deployment.skipAudit('a guard is taken away, and jobs are removed by hand')
    expect(await closeWhileSettling('claim')).toBe(1)
    // Without holding the groups, the settle would not wait and see nothing to open.
    const blind = [
      { name: 'close_limit', guard: 'group-locks' },
      { name: 'close_limit', guard: 'all-groups', replacement: 'false' },
    ]
    expect(await weakened(database, blind, () => closeWhileSettling('claim'))).toBe(0)
  })

  it('[L7] a slot freed while a claim closes the limit opens it again: the settle first', async () => {
    deployment.skipAudit('a guard is taken away, and jobs are removed by hand')
    expect(await closeWhileSettling('settle')).toBe(1)
    // Without asking whether all groups are held, `full` would be said of a limit with a slot on its way.
    const hasty = { name: 'close_limit', guard: 'all-groups', replacement: 'false' }
    expect(await weakened(database, [hasty], () => closeWhileSettling('settle'))).toBe(0)
  })
})

describe('lanes with keys', () => {
  /** A job is enqueued into a lane while a claim takes the lane off the list. Resolves to what is claimed in the end. */
  const enqueueWhileTidying = async (first: 'enqueue' | 'claim') => {
    const task = defineTask({ name: 'heads', concurrencyPerKey: 5 })
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueue(task, 'known', { concurrencyKey: 'k' })
    const worker = await workByHand(database, ['heads'])
    const [enqueueing, claiming] = [await database.connect(), await database.connect()]
    await enqueueing.query('begin')
    await claiming.query('begin')
    const enqueue = () => producer.enqueue(task, 'new', { concurrencyKey: 'k', tx: enqueueing })
    const claim = async () => {
      expect(await worker.claim(5, claiming)).toHaveLength(1)
      expect(await worker.claim(5, claiming)).toEqual([])
    }
    if (first === 'enqueue') {
      await enqueue()
      await claim()
    } else {
      await claim()
      await enqueue()
    }
    await claiming.query('commit')
    await enqueueing.query('commit')
    const claimed = (await worker.claim(5)).length
    await database.rows('truncate longshore.jobs, longshore.lane_heads')
    await database.rows('update longshore.slot_groups set used = 0')
    return claimed
  }

  it.each(['enqueue', 'claim'] as const)(
    '[L8] are found when a job comes while a claim empties them: the %s first',
    async first => {
      expect(await enqueueWhileTidying(first)).toBe(1)
      // Without holding the row that it relies on, the job would stand in a lane that no claim looks at.
      const trusting = { name: 'note_head', guard: 'relied-on' }
      deployment.skipAudit('a guard is taken out on purpose')
      expect(await weakened(database, [trusting], () => enqueueWhileTidying(first))).toBe(0)
    },
  )
})

describe('changing limits', () => {
  it('[L6] counts what runs when a limit is first set, and starts nothing until enough has ended', async () => {
    const free = defineTask({ name: 'later' })
    const producer = deployment.producer({ tasks: [free] })
    await producer.enqueueMany(free, numbers(10))
    const worker = await workByHand(database, ['later'])
    const running = await worker.claim(5)
    await register([{ name: 'later', concurrency: 3 }])
    expect(await usedOf('later')).toBe(5)
    expect((await groupsOf('later')).every(group => group.is_draining)).toBe(true)
    expect(await worker.claim(5)).toEqual([])
    await worker.settle(running.slice(0, 2).map(settling))
    expect(await worker.claim(5)).toEqual([])
    await worker.settle(running.slice(2, 4).map(settling))
    expect(await worker.claim(1)).toHaveLength(1)
    expect(await worker.claim(1)).toHaveLength(1)
    expect(await worker.claim(1)).toEqual([])
    expect(await usedOf('later')).toBe(3)
  })

  it('[L6] 500 → 10 → 500 under load: the surplus drains, nothing that runs is forgotten', async () => {
    await register([{ name: 'wave', concurrency: 500 }])
    const wave = defineTask({ name: 'wave', concurrency: 500 })
    const producer = deployment.producer()
    await producer.enqueueMany(wave, numbers(2000))
    const worker = await workByHand(database, ['wave'])
    const running = [
      ...(await worker.claim(1000)),
      ...(await worker.claim(1000)),
      ...(await worker.claim(1000)),
    ]
    expect(running).toHaveLength(500)
    await register([{ name: 'wave', concurrency: 10 }])
    for (let left = 500; left > 10; left -= 70) {
      await worker.settle(running.splice(0, 70).map(settling))
      expect(await usedOf('wave')).toBe(left - 70)
      if (left - 70 >= 10) expect(await worker.claim(100)).toEqual([])
    }
    expect(running.length).toBe(10)
    running.push(...(await worker.claim(100)))
    expect(running.length).toBe(10)
    await worker.settle(running.splice(0, 4).map(settling))
    for (let call = 0; call < 4; call++) running.push(...(await worker.claim(100)))
    expect(running.length).toBe(10)
    await register([{ name: 'wave', concurrency: 500 }])
    for (let call = 0; call < 5; call++) running.push(...(await worker.claim(1000)))
    expect(running.length).toBe(500)
    expect(await usedOf('wave')).toBe(500)
    await worker.settle(running.map(settling))
    expect(await usedOf('wave')).toBe(0)
  })

  it('[L6] a removed limit lets everything run; set again, it counts what runs', async () => {
    await register([{ name: 'gone', concurrency: 1, concurrencyPerKey: 1 }])
    const gone = defineTask({ name: 'gone', concurrency: 1, concurrencyPerKey: 1 })
    const producer = deployment.producer()
    await producer.enqueueMany(gone, numbers(4), { concurrencyKey: 'k' })
    await producer.enqueueMany(gone, numbers(4))
    const worker = await workByHand(database, ['gone'])
    const running = await worker.claim(10)
    expect(running).toHaveLength(1)
    expect(await worker.answer(10)).toBe('full')
    await register([{ name: 'gone' }])
    running.push(...(await worker.claim(10)))
    expect(running).toHaveLength(8)
    await register([{ name: 'gone', concurrency: 20, concurrencyPerKey: 5 }])
    expect([await usedOf('gone'), await usedOf('gone', 'k')]).toEqual([8, 4])
    await worker.settle(running.map(settling))
    expect([await usedOf('gone'), await usedOf('gone', 'k')]).toEqual([0, 0])
  })

  it('[L6] never touches tasks that it does not name, and writes nothing when nothing changed', async () => {
    await register([
      { name: 'x', concurrency: 5 },
      { name: 'y', concurrency: 7 },
    ])
    const before = await database.rows('select xmin, * from longshore.slot_groups order by 2, 3')
    await register([{ name: 'x', concurrency: 5 }])
    await register([{ name: 'z' }])
    expect(await database.rows('select xmin, * from longshore.slot_groups order by 2, 3')).toEqual(before)
  })

  /** A limit is set while a claim that does not know of it is about to commit. Resolves to how many run in the end. */
  const limitWhileClaiming = async () => {
    const free = defineTask({ name: 'inflight' })
    const producer = deployment.producer({ tasks: [free] })
    await producer.enqueueMany(free, numbers(9))
    const worker = await workByHand(database, ['inflight'])
    const [claiming, setting] = [await database.connect(), await database.connect()]
    await claiming.query('begin')
    expect(await worker.claim(2, claiming)).toHaveLength(2)
    const limited = {
      name: 'inflight',
      queue: 'default',
      tag: 'default',
      maxAttempts: 3,
      maxRescues: 10,
      concurrency: 3,
    }
    const set = setting.query('select longshore.register_tasks($1)', [JSON.stringify([limited])])
    await Promise.race([set, waitsForLock(database, setting)])
    await claiming.query('commit')
    await set
    for (let call = 0; call < 4; call++) await worker.claim(5)
    const running = await database.rows("select from longshore.jobs where state = 'running'")
    await database.rows('truncate longshore.jobs, longshore.limits, longshore.slot_groups, longshore.tasks')
    return running.length
  }

  it('[L6] a first limit waits for claims that do not know of it, and counts their jobs', async () => {
    expect(await limitWhileClaiming()).toBe(3)
    const careless = {
      name: 'hold_limits',
      guard: 'worker-locks',
      replacement: 'w.id',
    }
    deployment.skipAudit('a guard is taken out on purpose')
    expect(await weakened(database, [careless], limitWhileClaiming)).toBe(5)
  })

  it('[L6] a claim that comes while a first limit is set waits its turn', async () => {
    const free = defineTask({ name: 'turn' })
    const producer = deployment.producer({ tasks: [free] })
    await producer.enqueueMany(free, numbers(5))
    const worker = await workByHand(database, ['turn'])
    const setting = await database.connect()
    await setting.query('begin')
    const limited = {
      name: 'turn',
      queue: 'default',
      tag: 'default',
      maxAttempts: 3,
      maxRescues: 10,
      concurrency: 1,
    }
    await setting.query('select longshore.register_tasks($1)', [JSON.stringify([limited])])
    expect(await worker.answer(5)).toBe('busy')
    await setting.query('commit')
    expect(await worker.claim(5)).toHaveLength(1)
  })

  /** A limit of 4 becomes 2 while 4 run; the two that end hold the slots that are left. Resolves to how many start then. */
  const lowerWhileRunning = async () => {
    await register([{ name: 'lower', concurrency: 4 }])
    const producer = deployment.producer()
    await producer.enqueueMany(defineTask({ name: 'lower', concurrency: 4 }), numbers(9))
    const worker = await workByHand(database, ['lower'])
    for (let call = 0; call < 4; call++) await worker.claim(4)
    await register([{ name: 'lower', concurrency: 2 }])
    const held = await database.rows<{ id: string; token: string }>(
      "select id, lease_token as token from longshore.jobs where state = 'running' and slot in (0, 1)",
    )
    expect(held).toHaveLength(2)
    await worker.settle(held)
    expect(await worker.claim(4)).toEqual([])
    // As a claim would that read the counts before the limit was lowered.
    const [taken] = await database.rows<{ slots: number }>(
      'select cardinality(longshore.take_slots(id, 2)) as slots from longshore.limits',
    )
    await database.rows('truncate longshore.jobs, longshore.limits, longshore.slot_groups, longshore.tasks')
    return taken?.slots
  }

  it('[L6] starts nothing while more runs than a lowered limit allows, whichever groups are free', async () => {
    expect(await lowerWhileRunning()).toBe(0)
    const eager = { name: 'take_slots', guard: 'draining', replacement: 'true' }
    deployment.skipAudit('a guard is taken out on purpose')
    expect(await weakened(database, [eager], lowerWhileRunning)).toBe(2)
  })

  /** A limit of 2 becomes 1; both of its runs end at once. Resolves to how many start then. */
  const endTogether = async () => {
    await register([{ name: 'together', concurrency: 2 }])
    const producer = deployment.producer()
    await producer.enqueueMany(defineTask({ name: 'together', concurrency: 2 }), numbers(5))
    const worker = await workByHand(database, ['together'])
    const running = [...(await worker.claim(1)), ...(await worker.claim(1))]
    await register([{ name: 'together', concurrency: 1 }])
    expect(await worker.answer(5)).toBe('full')
    const [one, other] = [await database.connect(), await database.connect()]
    await one.query('begin')
    await other.query('begin')
    await worker.settle(running.slice(0, 1).map(settling), one)
    const settled = worker.settle(running.slice(1).map(settling), other)
    await Promise.race([settled, waitsForLock(database, other)])
    await one.query('commit')
    await settled
    await other.query('commit')
    const started = (await worker.claim(5)).length
    await database.rows('truncate longshore.jobs, longshore.limits, longshore.slot_groups, longshore.tasks')
    return started
  }

  it('[L6] opens a lowered limit when the last of its surplus ends at once with another', async () => {
    deployment.skipAudit('a guard is taken out on purpose, and jobs are removed by hand')
    expect(await endTogether()).toBe(1)
    // Each would take the other's slot for used, and the limit would stay closed for ever.
    const blind = { name: 'open_limits', guard: 'one-at-a-time' }
    expect(await weakened(database, [blind], endTogether)).toBe(0)
  })

  it('[L6] a limit that is removed while a claim finds it full does not stay closed', async () => {
    await register([{ name: 'removed', concurrencyPerKey: 1 }])
    const producer = deployment.producer()
    const task = defineTask({ name: 'removed', concurrencyPerKey: 1 })
    await producer.enqueueMany(task, numbers(3), { concurrencyKey: 'k' })
    const worker = await workByHand(database, ['removed'])
    expect(await worker.claim(1)).toHaveLength(1)
    const [claiming, gate] = [await database.connect(), await database.connect()]
    const pausing = { name: 'claim_lanes', point: 'closing', insertion: pauseAt(71) }
    await weakened(database, [pausing], async () => {
      await gate.query('select pg_advisory_lock(71)')
      const claimed = worker.claim(5, claiming)
      await waitsForLock(database, claiming)
      await register([{ name: 'removed' }])
      await gate.query('select pg_advisory_unlock(71)')
      expect(await claimed).toEqual([])
    })
    expect(await worker.claim(5)).toHaveLength(2)
  })

  /** Tasks are registered while a settle that frees slots waits at a barrier. Resolves when both are done. */
  const registerWhile = async (
    settling: Weakness,
    settle: (on: TestClient) => Promise<unknown>,
    tasks: object[],
  ) => {
    const [settles, registers, gate] = [
      await database.connect(),
      await database.connect(),
      await database.connect(),
    ]
    await weakened(database, [settling], async () => {
      await gate.query('select pg_advisory_lock(72)')
      const settled = settle(settles)
      await waitsForLock(database, settles)
      const registered = registers.query('select longshore.register_tasks($1)', [factsOf(tasks)])
      await Promise.race([registered, waitsForLock(database, registers)])
      await gate.query('select pg_advisory_unlock(72)')
      await Promise.all([settled, registered])
    })
  }

  it('[L6] the limits of keys are removed while runs of them end, in whatever order both go', async () => {
    await register([{ name: 'order', concurrencyPerKey: 1 }])
    const task = defineTask({ name: 'order', concurrencyPerKey: 1 })
    const producer = deployment.producer()
    const worker = await workByHand(database, ['order'])
    const running: Claimed[] = []
    for (const concurrencyKey of ['z', 'a']) {
      await producer.enqueueMany(task, numbers(2), { concurrencyKey })
      running.push(...(await worker.claim(1)))
    }
    expect(await worker.answer(5)).toBe('full')
    const pausing = { name: 'open_limits', point: 'opened', insertion: pauseAt(72) }
    await registerWhile(pausing, on => worker.settle(running.map(settling), on), [{ name: 'order' }])
    expect(await worker.claim(5)).toHaveLength(2)
  })

  it('[L6] one limit is removed and another first set while a worker settles and claims', async () => {
    await register([{ name: 'was', concurrency: 1 }, { name: 'will' }])
    const producer = deployment.producer()
    await producer.enqueueMany(defineTask({ name: 'was', concurrency: 1 }), numbers(3))
    const worker = await workByHand(database, ['was', 'will'])
    const [job] = await worker.claim(1)
    expect(await worker.answer(5)).toBe('full')
    const pausing = { name: 'claim', point: 'freeing', insertion: pauseAt(72) }
    const settle = (on: TestClient) =>
      on.query('select longshore.settle_and_claim($1, $2, $3, null, null, 5)', [
        worker.id,
        [job?.id],
        [job?.lease_token],
      ])
    await registerWhile(pausing, settle, [{ name: 'was' }, { name: 'will', concurrency: 3 }])
    // The slot that it freed was taken again in the same call.
    expect(await worker.claim(5)).toHaveLength(1)
  })

  it('[L6] a first limit gives up, and lets claims go on, while a user holds a job that runs', async () => {
    const free = defineTask({ name: 'held' })
    const producer = deployment.producer({ tasks: [free] })
    await producer.enqueueMany(free, numbers(3))
    const worker = await workByHand(database, ['held'])
    const [job] = await worker.claim(1)
    const user = await database.connect()
    await user.query('begin')
    await user.query('select longshore.cancel($1)', [[job?.id]])
    await expect(register([{ name: 'held', concurrency: 2 }])).rejects.toThrow('lock timeout')
    expect(await worker.claim(1)).toHaveLength(1)
    await user.query('commit')
    await register([{ name: 'held', concurrency: 2 }])
    expect(await usedOf('held')).toBe(2)
  })
})

describe('workers under a limit', () => {
  it('[L1] are woken when a slot is freed, and run everything', async () => {
    const task = defineTask({ name: 'woken', concurrency: 2 })
    const producer = deployment.producer()
    const done = counter()
    const begun = counter()
    let inside = 0
    let most = 0
    const handler = task.handle(async () => {
      most = Math.max(most, ++inside)
      begun.add()
      await begun.reached(2) // so the first two must run at once
      await new Promise(resolve => setImmediate(resolve))
      inside--
      done.add()
    })
    // Without bells they would look once an hour.
    const options = { handlers: [handler], pollInterval: 3_600_000 }
    await Promise.all([deployment.worker(options), deployment.worker(options), deployment.worker(options)])
    await producer.enqueueMany(task, numbers(300))
    await done.reached(300)
    expect(most).toBe(2)
    await eventually('all slots are free', async () => (await usedOf('woken')) === 0)
  })

  it('[L8] run the jobs of each key up to its limit, woken by bells alone', async () => {
    const task = defineTask<string>({ name: 'tenants', concurrency: 10, concurrencyPerKey: 2 })
    const producer = deployment.producer()
    const done = counter()
    const begun = counter()
    const inside = new Map<string, number>()
    let most = 0
    const handler = task.handle(async job => {
      const now = (inside.get(job.payload) ?? 0) + 1
      inside.set(job.payload, now)
      most = Math.max(most, now)
      begun.add()
      await begun.reached(8)
      inside.set(job.payload, (inside.get(job.payload) ?? 0) - 1)
      done.add()
    })
    const options = { handlers: [handler], pollInterval: 3_600_000 }
    await Promise.all([deployment.worker(options), deployment.worker(options)])
    await Promise.all(
      numbers(4).map(n =>
        producer.enqueueMany(
          task,
          Array.from({ length: 75 }, () => `tenant ${n}`),
          { concurrencyKey: `tenant ${n}` },
        ),
      ),
    )
    await done.reached(300)
    expect(most).toBe(2)
  })

  it('[L7] a job enqueued in a transaction that stays open holds up no other of its key', async () => {
    const task = defineTask<number>({ name: 'open', concurrencyPerKey: 1 })
    const producer = deployment.producer({ tasks: [task] })
    const ran: number[] = []
    const done = counter()
    await deployment.worker({
      handlers: [
        task.handle(job => {
          ran.push(job.payload)
          done.add()
        }),
      ],
      pollInterval: 3_600_000,
    })
    const tx = await database.connect()
    await tx.query('begin')
    await producer.enqueue(task, 0, { concurrencyKey: 'k', tx })
    for (let n = 1; n <= 20; n++) {
      await producer.enqueue(task, n, { concurrencyKey: 'k' })
      await done.reached(n)
    }
    await tx.query('commit')
    await done.reached(21)
    expect(ran.at(-1)).toBe(0)
  })

  it('[L3] touches no slot row where none of its tasks is limited', async () => {
    const tasks = ['plain', 'other'].map(name => defineTask({ name }))
    const limited = defineTask({ name: 'else', concurrency: 3 })
    const producer = deployment.producer({ tasks: [...tasks, limited] })
    await producer.enqueueMany(limited, numbers(5))
    const done = counter()
    for (const served of [tasks.slice(0, 1), tasks]) {
      await deployment.worker({ handlers: served.map(task => task.handle(() => done.add())) })
    }
    // Whoever touched one would wait for ever.
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('lock table longshore.slot_groups in access exclusive mode')
    for (const task of tasks) await producer.enqueueMany(task, numbers(250))
    await done.reached(500)
    await eventually('all of them are settled', async () => {
      const left = await database.rows(
        "select from longshore.jobs j join longshore.lanes l on l.id = j.lane where l.task <> 'else'",
      )
      return left.length === 0
    })
    await tx.query('rollback')
  })
})

describe('limits that make no sense', () => {
  it.each([
    [{ concurrency: 0 }, 'concurrency must be a whole number from 1'],
    [{ concurrency: -1 }, 'concurrency must be a whole number from 1'],
    [{ concurrency: 1.5 }, 'concurrency must be a whole number from 1'],
    [{ concurrencyPerKey: 0 }, 'concurrencyPerKey must be a whole number from 1'],
    [{ concurrency: Number.NaN }, 'concurrency must be a whole number from 1'],
  ])('[L1] %j is refused', (options, message) => {
    expect(() => defineTask({ name: 'wrong', ...options })).toThrow(message)
  })

  it('[L1] are refused by the tables too', async () => {
    await expect(register([{ name: 'wrong', concurrency: 0 }])).rejects.toThrow('concurrency')
    await expect(register([{ name: 'wrong', concurrencyPerKey: -3 }])).rejects.toThrow('concurrency')
  })

  it('[L8] [X1] plain SQL takes a key, and refuses what the API refuses', async () => {
    await register([{ name: 'sql', concurrencyPerKey: 1 }, { name: 'none' }])
    const enqueue = (task: string, key: string) =>
      database.rows("select longshore.enqueue($1, '1', jsonb_build_object('concurrencyKey', $2::text))", [
        task,
        key,
      ])
    await enqueue('sql', 'k')
    await enqueue('sql', 'k')
    const worker = await workByHand(database, ['sql'])
    expect([...(await worker.claim(5)), ...(await worker.claim(5))]).toHaveLength(1)
    await expect(enqueue('none', 'k')).rejects.toThrow('has no concurrencyPerKey')
    await expect(enqueue('sql', '')).rejects.toThrow('concurrencyKey must be a text of 1 to 200 characters')
    await expect(enqueue('sql', 'k'.repeat(201))).rejects.toThrow(
      'concurrencyKey must be a text of 1 to 200 characters',
    )
  })

  it('[L8] a key for a task without concurrencyPerKey is refused, and one that is too long', async () => {
    const producer = deployment.producer()
    await expect(producer.enqueue(defineTask({ name: 'none' }), 1, { concurrencyKey: 'k' })).rejects.toThrow(
      'has no concurrencyPerKey',
    )
    await expect(
      producer.enqueue(defineTask({ name: 'some', concurrencyPerKey: 1 }), 1, {
        concurrencyKey: 'k'.repeat(201),
      }),
    ).rejects.toThrow('concurrencyKey must be a text of 1 to 200 characters')
  })
})
