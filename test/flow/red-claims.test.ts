/** The red side of claims: every way in which Postgres hands jobs over, without one of its guards. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { createClaimCursor } from '../../src/worker/claim-cursor.ts'
import { workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { underWay, useGuards } from '../support/guards.ts'
import { waitsForLock } from '../support/locks.ts'
import { pauseAt, type Weakness } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin, barrier } = useGuards(database, deployment)
const one = defineTask({ name: 'one' })
const limited = defineTask({ name: 'limited', concurrency: 5 })

const BARRIER = 81
const AT_BARRIER = `pg_advisory_xact_lock_shared(${BARRIER}) is not null`

type Claim = (worker: number, ids: readonly string[], client?: TestClient) => Promise<string[]>
const asking =
  (text: string, values: (worker: number, ids: readonly string[]) => unknown[]): Claim =>
  async (worker, ids, client) => {
    const sql = `select coalesce(string_agg(c.ids::text, ','), '') as ids from (${text}) c`
    const [row] = client
      ? (await client.query<{ ids: string }>(sql, values(worker, ids))).rows
      : await database.rows<{ ids: string }>(sql, values(worker, ids))
    return row?.ids ? row.ids.split(',') : []
  }
const LANES = 'array(select distinct lane from longshore.jobs)'
/** From the head of its lanes. */
const claim = asking("select id as ids from longshore.claim($1, 5) where answer = 'claimed'", worker => [
  worker,
])
const claimPlain = asking(
  "select ids from longshore.settle_and_claim($1, '{}', '{}', null, null, 5)",
  worker => [worker],
)
/** What Redis names. */
const claimThese = asking(
  `select id as ids from longshore.claim_these($1, $2, ${LANES}) where answer = 'claimed'`,
  (worker, ids) => [worker, ids],
)
const claimNamed = asking(
  `select ids from longshore.settle_and_claim($1, '{}', '{}', null, null, 5, $2, ${LANES})`,
  (worker, ids) => [worker, ids],
)

interface Way {
  way: string
  name: string
  claim: Claim
  /** Of its worker; the job is of the first. */
  tasks: string[]
  /** Without looking at the state. */
  stateless: Weakness[]
  token: string
  /** How another gets hold of the job before. */
  other: Claim
}
const NEW_TOKEN = "lease_token = (select nextval('longshore.lease_tokens'))"
const NAMED = "j.state::text = 'ready' and j.lane = any"
const MERGED = {
  name: 'merge_heads',
  remove: " and j.state = 'ready' and (j.score",
  replacement: ' and (j.score',
}
const ways: Way[] = [
  {
    way: 'from the one lane of a worker',
    name: 'claim_plain',
    claim: claimPlain,
    tasks: ['one'],
    stateless: [{ name: 'claim_plain', remove: " and j.state = 'ready'" }],
    token: NEW_TOKEN,
    other: claim,
  },
  {
    way: 'of what Redis names',
    name: 'claim_plain',
    claim: claimNamed,
    tasks: ['one'],
    stateless: [{ name: 'claim_plain', remove: NAMED, replacement: 'j.lane = any' }],
    token: `${NEW_TOKEN}\n    where j.ctid = any (array(select f`,
    other: claim,
  },
  {
    way: 'from several lanes',
    name: 'claim_merged',
    claim,
    tasks: ['one', 'two'],
    stateless: [MERGED, { name: 'claim_merged', remove: NAMED, replacement: 'j.lane = any' }],
    token: 'lease_token = v_token',
    other: claimThese,
  },
  {
    way: 'from one lane under a limit',
    name: 'claim_limited_lane',
    claim,
    tasks: ['limited'],
    stateless: [{ name: 'claim_limited_lane', remove: " and j.state = 'ready'", isEverywhere: true }],
    token: NEW_TOKEN,
    other: claimThese,
  },
  {
    way: 'from several lanes beside a limit',
    name: 'claim_limited',
    claim,
    tasks: ['limited', 'two'],
    stateless: [MERGED, { name: 'claim_limited', remove: NAMED, replacement: 'j.lane = any' }],
    token: 'lease_token = v_token',
    other: claimThese,
  },
  {
    way: 'of what Redis names, beside a settle',
    name: 'claim_these',
    claim: claimThese,
    tasks: ['one'],
    stateless: [{ name: 'claim_these', remove: NAMED, replacement: 'j.lane = any', isEverywhere: true }],
    token: 'lease_token = v_token',
    other: claim,
  },
  {
    way: 'of what Redis names under a limit',
    name: 'claim_these',
    claim: claimThese,
    tasks: ['limited'],
    stateless: [{ name: 'claim_these', remove: NAMED, replacement: 'j.lane = any', isEverywhere: true }],
    token: 'lease_token = v_token',
    other: claim,
  },
]

const byWay = ways.map(way => [way.way, way] as const)

/** A job of the worker's first task, and the lanes of the others. */
const prepare = async (tasks: readonly string[]) => {
  const producer = deployment.producer({ tasks: [one, limited] })
  const task = tasks[0] === 'one' ? one : limited
  const job = await producer.enqueue(task, 1)
  if (tasks.length > 1)
    await database.rows("select longshore.find_lane('default', $1, 'default', 'c:')", [tasks[1]])
  return { producer, job }
}

/** A claim has found the job, and stands still before it locks it, while `meanwhile` happens. */
const whileFound = async (
  { tasks, claim }: Pick<Way, 'tasks' | 'claim'>,
  meanwhile: (found: Awaited<ReturnType<typeof prepare>>) => Promise<unknown>,
) => {
  const found = await prepare(tasks)
  const worker = await workByHand(database, tasks)
  const { open } = await barrier(BARRIER)
  const client = await begin()
  const claimed = underWay(claim(worker.id, [found.job.id], client))
  await waitsForLock(database, client)
  await meanwhile(found)
  await open()
  const got = await claimed
  await client.query('commit')
  return got
}

/** What a claim has found, it changes at the very place where it found it, and where the state is still the same. */
const placed: { name: string; claim: Claim; other: Claim; found: string; from: string }[] = [
  {
    name: 'claim_plain',
    claim: claimPlain,
    other: claim,
    found: 'h',
    from: "j.lane = v_lanes[1] and j.state = 'ready'",
  },
  {
    name: 'claim_plain',
    claim: claimNamed,
    other: claim,
    found: 'f',
    from: "j.id = any (p_these) and j.state::text = 'ready'",
  },
]

const functions = [
  ['claim_plain', claimPlain],
  ['claim_plain', claimNamed],
  ['claim', claim],
  ['claim_these', claimThese],
] as const
const CONDITIONS = [
  'l.task = any (w.tasks) and ',
  ' and l.tag = any (w.tags)',
  'l.constraint_tag = any (w.constraint_tags) and ',
  ' and l.queue = any (w.queues)',
]

describe('a claim', () => {
  it.each(byWay)(
    '[C8] %s hands over what is ready, and nothing that runs',
    (_, { stateless, tasks, claim, other }) =>
      check({
        rule: 'the state in the compare-and-set of a claim',
        without: stateless,
        happens: async () => {
          const { job } = await prepare(tasks)
          expect(await other((await workByHand(database, [tasks[0] as string])).id, [job.id])).toEqual([
            job.id,
          ])
          await claim((await workByHand(database, tasks)).id, [job.id])
        },
        tells: /^3: .* without a claim/m,
      }),
  )

  it.each(placed)('[C8] hands over a job once that another claims in the same moment ($name, case %#)', way =>
    check({
      rule: 'the state, and the place of the row',
      given: [{ name: way.name, remove: way.from, replacement: `${way.from} and ${AT_BARRIER}` }],
      without: [
        {
          name: way.name,
          remove: `${way.from} and ${AT_BARRIER}`,
          replacement: `${way.from.replace(/ and .*/, '')} and ${AT_BARRIER}`,
        },
        // Whoever waits for a lock gets the newest version of the row, which its own statement does not see yet.
        {
          name: way.name,
          remove: 'select j.ctid from',
          replacement: 'select j.id as ctid from',
          isEverywhere: true,
        },
        {
          name: way.name,
          remove: `j.ctid = any (array(select ${way.found}.ctid`,
          replacement: `j.id = any (array(select ${way.found}.ctid`,
        },
      ],
      happens: async () => {
        await whileFound({ ...way, tasks: ['one'] }, async ({ job }) => {
          expect(await way.other((await workByHand(database, ['one'])).id, [job.id])).toEqual([job.id])
        })
      },
      tells: /^3: .* without a claim/m,
    }),
  )

  it.each([
    ['claim_plain', claimNamed, ['one'], `${NAMED} (v_lanes)\n    for`],
    ['claim_these', claimThese, ['one'], `${NAMED} (v_lanes)`],
    ['claim_these', claimThese, ['limited'], `${NAMED} (v_lanes)`],
  ] as const)(
    '[C6] hands over no job that has left the lane in which Redis believes it (%s, case %#)',
    (name, claim, tasks, lock) =>
      check({
        rule: 'the lane in the compare-and-set of a claim',
        without: {
          name,
          remove: lock,
          replacement: lock.replace(' and j.lane = any (v_lanes)', ''),
          isEverywhere: true,
        },
        happens: async () => {
          const { producer, job } = await prepare(tasks)
          await producer.enqueue(tasks[0] === 'one' ? one : limited, 'in its place')
          await producer.change(job, { constraints: { gpu: 'a100' } })
          const got = await claim((await workByHand(database, [...tasks])).id, [job.id])
          if (got.length > 0) return 'a worker without the property got the job'
        },
        tells: /a worker without the property got the job/,
      }),
  )

  it.each(byWay)('[X4] %s gives each run a token of its own', (_, { name, claim, tasks, token }) =>
    check({
      rule: 'a new lease token with each claim',
      without: {
        name,
        remove: token,
        replacement: token.replace(
          /lease_token = (\(select nextval\('longshore.lease_tokens'\)\)|v_token)/,
          'lease_token = j.lease_token',
        ),
      },
      happens: async () => {
        const { job } = await prepare(tasks)
        const worker = await workByHand(database, tasks)
        expect(await claim(worker.id, [job.id])).toEqual([job.id])
      },
      tells: /^4: .* token 0/m,
    }),
  )

  it.each([
    ['claim_merged', ['one', 'two'], 'v_depth := 2 * v_depth;'],
    ['claim_limited', ['one', 'limited'], 'v_tried := v_tried || v_all_short;'],
  ] as const)(
    '[X4] that looks further gives no lower token than a run had that began and was given back meanwhile, and asks for more (%s)',
    (name, tasks, further) =>
      check({
        rule: 'the token in the compare-and-set of a claim',
        given: [{ name, remove: further, replacement: `${further} ${pauseAt(BARRIER)}` }],
        without: { name, remove: 'and j.lease_token < v_token' },
        happens: async () => {
          const { producer, job } = await prepare(tasks)
          const others = await producer.enqueueMany(one, [2, 3, 4, 5])
          const last = await producer.enqueue(one, 6)
          const holder = await begin()
          await holder.query('select from longshore.jobs where id = any ($1) for update', [
            [job, ...others].map(({ id }) => id),
          ])
          const worker = await workByHand(database, [...tasks])
          const { open } = await barrier(BARRIER)
          const client = await begin()
          const answers = underWay(client.query('select id, answer from longshore.claim($1, 5)', [worker.id]))
          await waitsForLock(database, client)
          const other = await workByHand(database, [tasks[0]])
          expect(await claimThese(other.id, [last.id])).toEqual([last.id])
          const [run] = await database.rows<{ token: string }>(
            'select lease_token::text as token from longshore.jobs where id = $1',
            [last.id],
          )
          await other.settleOthers([{ id: last.id, token: run?.token, outcome: 'released' }])
          await open()
          const { rows } = await answers
          await client.query('commit')
          await holder.query('rollback')
          const isGiven = rows.some(row => row.id === last.id)
          if (!isGiven) expect(rows).toEqual([{ id: null, answer: 'more' }])
        },
        tells: /^3: .* it was claimed with token \d+ after token \d+/m,
      }),
  )

  it.each(functions)(
    '[S7] holds its worker until the commit: no rescue misses what it hands over (%s, case %#)',
    (name, claim) =>
      check({
        rule: 'the lock of the worker',
        without: {
          name,
          remove: "if not pg_try_advisory_xact_lock_shared(hashtext('longshore.worker'), p_worker) then",
          replacement: 'if false then',
        },
        happens: async () => {
          const { job } = await prepare(['one'])
          const worker = await workByHand(database, ['one'])
          const client = await begin()
          expect(await claim(worker.id, [job.id], client)).toEqual([job.id])
          await database.rows("update longshore.workers set expires_at = now() - interval '1 second'")
          await database.rows('select longshore.rescue(3600000, 100)')
          await client.query('commit')
        },
        tells: /^13: .* it runs under worker \d+, which does not exist/m,
      }),
  )

  it.each(functions)('[S7] hands nothing to a worker that is taken for dead (%s, case %#)', (name, claim) =>
    check({
      rule: 'the worker of a claim is alive',
      without: { name, remove: ' and w.dead_at is null', isEverywhere: true },
      happens: async () => {
        const { producer } = await prepare(['one'])
        const worker = await workByHand(database, ['one'])
        await worker.claim(1)
        await database.rows("update longshore.workers set expires_at = now() - interval '1 second'")
        // Its row stays while a job runs under it that was not rescued yet.
        await database.rows('select longshore.rescue(3600000, 0)')
        const next = await producer.enqueue(one, 2)
        if ((await claim(worker.id, [next.id])).length > 0) return 'a dead worker was given a job'
      },
      tells: /a dead worker was given a job/,
    }),
  )

  it.each(
    functions.flatMap(([name, claim]) =>
      CONDITIONS.map(condition => [name, condition.replace(/^ and | and $/, ''), condition, claim] as const),
    ),
  )('[C6] of %s asks again what the worker may run: %s (case %#)', (name, _, condition, claim) =>
    check({
      rule: 'a claim asks for everything again',
      without: { name, remove: condition, isEverywhere: true },
      happens: async () => {
        const job = await deployment.producer().enqueue(one, 1, {
          tag: condition.includes('tag = any (w.tags)') ? 'other' : 'default',
          queue: condition.includes('queue') ? 'other' : 'default',
          constraints: condition.includes('constraint') ? { gpu: 'a100' } : {},
        })
        const worker = await workByHand(database, [condition.includes('task') ? 'two' : 'one'])
        if ((await claim(worker.id, [job.id])).length > 0) return 'it got a job that it may not run'
      },
      tells: /it got a job that it may not run/,
    }),
  )
})

describe('a worker that claims from where it was', () => {
  /** A backlog of ten is claimed by twos; after the first two comes an urgent job. Answers when that was claimed. */
  const drain = async (cursor: ReturnType<typeof createClaimCursor>, onClaim: () => void) => {
    const producer = deployment.producer()
    await producer.enqueueMany(
      one,
      Array.from({ length: 10 }, (_, n) => n),
    )
    const worker = await workByHand(database, ['one'])
    const order: string[] = []
    let urgent = ''
    for (let calls = 1; calls <= 12; calls++) {
      const from = cursor.begin()
      const [row] = await database.rows<{ ids: string | null; scores: string | null }>(
        `select ids, scores from longshore.settle_and_claim($1, '{}', '{}', null, null, 2, null, null, false, $2)`,
        [worker.id, from],
      )
      const ids = row?.ids?.split(',') ?? []
      const worst = row?.scores?.split(',').at(-1)
      cursor.note({ from, isFilled: ids.length === 2, worst: worst ? Number(worst) : undefined, ms: 1 })
      order.push(...ids)
      if (calls === 1) urgent = (await producer.enqueue(one, 'urgent', { priority: 9 })).id
      onClaim()
    }
    await deployment.clear()
    return order.indexOf(urgent)
  }

  it('[C7] begins at the start again and again: a job that came before its place does not wait for the backlog', async () => {
    let now = 0
    const ticking = await drain(
      createClaimCursor(() => now),
      () => {
        now += 10
      },
    )
    expect(ticking).toBeLessThan(7)
    // Without the restart it comes last.
    expect(
      await drain(
        createClaimCursor(() => 0),
        () => undefined,
      ),
    ).toBe(10)
  })

  it('[C7] begins at the start when a claim was not filled: nothing is taken for empty before', async () => {
    const cursor = createClaimCursor(() => 0)
    const forgetful = {
      begin: cursor.begin,
      note: (claim: Parameters<typeof cursor.note>[0]) => claim.isFilled && cursor.note(claim),
    }
    expect(
      await drain(
        createClaimCursor(() => 0),
        () => undefined,
      ),
    ).toBe(10)
    // Without that it would wait for ever.
    expect(await drain(forgetful, () => undefined)).toBe(-1)
  })
})
