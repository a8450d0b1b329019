/** The red side of claims: every way in which Postgres hands jobs over, without one of its guards. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type ClaimCursor, type ClaimNote, createClaimCursor } from '../../src/worker/claim-cursor.ts'
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
const two = defineTask({ name: 'two' })
const limited = defineTask({ name: 'limited', concurrency: 5 })

const BARRIER = 81
const AT_BARRIER = `pg_advisory_xact_lock_shared(${BARRIER}) is not null`

type Claim = (worker: number, ids: readonly string[], client?: TestClient) => Promise<string[]>
const asking =
  (call: string, values: (worker: number, ids: readonly string[]) => unknown[]): Claim =>
  async (worker, ids, client) => {
    const sql = `select ids from longshore.${call}`
    const [row] = client
      ? (await client.query<{ ids: string | null }>(sql, values(worker, ids))).rows
      : await database.rows<{ ids: string | null }>(sql, values(worker, ids))
    return row?.ids?.split(',') ?? []
  }
/** From the head of its lanes. */
const claim = asking('claim($1, 5)', worker => [worker])
/** What Redis names. */
const claimNamed = asking(
  'claim($1, 5, $2, array(select distinct lane from longshore.jobs))',
  (worker, ids) => [worker, ids],
)

interface Way {
  way: string
  claim: Claim
  /** Of its worker; the job is of the first. */
  tasks: string[]
  /** Without looking at the state. */
  stateless?: Weakness[]
  /** How another gets hold of the job before. */
  other: Claim
}
const STILL_READY = 'still-ready'
/** Where rows are looked up by their ids, those are found too that have changed since. */
const ANYWHERE = 'j.id = any (array(select o.id from longshore.jobs o where o.ctid = any (v_found)))'
const MERGED: Weakness[] = [
  { name: 'merge_lanes', guard: 'ready' },
  { name: 'lock_jobs', guard: STILL_READY },
]
const NAMED: Weakness[] = [{ name: 'claim_these', guard: STILL_READY }]
const ways: Way[] = [
  {
    way: 'from the one lane of a worker',
    claim,
    tasks: ['one'],
    stateless: [{ name: 'claim', guard: STILL_READY }],
    other: claimNamed,
  },
  { way: 'from several lanes', claim, tasks: ['one', 'two'], other: claimNamed },
  { way: 'from one lane under a limit', claim, tasks: ['limited'], stateless: MERGED, other: claimNamed },
  {
    way: 'from several lanes beside a limit',
    claim,
    tasks: ['limited', 'two'],
    stateless: MERGED,
    other: claimNamed,
  },
  { way: 'of what Redis names', claim: claimNamed, tasks: ['one'], stateless: NAMED, other: claim },
  {
    way: 'of what Redis names under a limit',
    claim: claimNamed,
    tasks: ['limited'],
    stateless: NAMED,
    other: claim,
  },
]

const byWay = ways.map(way => [way.way, way] as const)

/** A job of the worker's first task, and the lanes of the others. */
const prepare = async (tasks: readonly string[]) => {
  const producer = deployment.producer({ tasks: [one, two, limited] })
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
  // Lanes are merged where several have jobs.
  if (tasks.includes('two')) await found.producer.enqueue(two, 1)
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

/** Where each way has its snapshot, and has not locked the job yet. A row that has changed since is not at its place any more either. */
const readings = [
  {
    way: 'one lane',
    ...{ claim, other: claimNamed, tasks: ['one'] },
    point: { name: 'claim', point: 'reading' },
    without: [{ name: 'claim', guard: STILL_READY }],
  },
  {
    way: 'several lanes',
    ...{ claim, other: claimNamed, tasks: ['one', 'two'] },
    point: { name: 'claim', point: 'locking' },
    without: [
      { name: 'claim', guard: 'found-still-ready' },
      { name: 'claim', guard: 'same-place', replacement: ANYWHERE },
    ],
  },
  {
    way: 'named',
    ...{ claim: claimNamed, other: claim, tasks: ['one'] },
    point: { name: 'claim_these', point: 'reading' },
    without: [{ name: 'claim_these', guard: STILL_READY }],
  },
]

const functions = [
  ['one lane', claim],
  ['named', claimNamed],
] as const
const CONDITIONS = ['task', 'tag', 'constraints', 'queue'] as const

describe('a claim', () => {
  it.each(byWay.filter(([, { stateless }]) => stateless))(
    '[C8] %s hands over what is ready, and nothing that runs',
    (_, { stateless, tasks, claim, other }) =>
      check({
        rule: 'the state in the compare-and-set of a claim',
        without: stateless ?? [],
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

  it.each(readings)('[C8] hands over a job once that another claims in the same moment ($way)', way =>
    check({
      rule: 'the state, looked at again under the lock',
      given: [{ ...way.point, insertion: `and ${AT_BARRIER}` }],
      without: way.without,
      happens: async () => {
        await whileFound(way, async ({ job }) => {
          expect(await way.other((await workByHand(database, ['one'])).id, [job.id])).toEqual([job.id])
        })
      },
      tells: /^3: .* without a claim/m,
    }),
  )

  it.each([[['one']], [['limited']]])(
    '[C6] hands over no job that has left the lane in which Redis believes it (%s)',
    tasks =>
      check({
        rule: 'the lane in the compare-and-set of a claim',
        without: { name: 'claim_these', guard: 'named-lane' },
        happens: async () => {
          const { producer, job } = await prepare(tasks)
          const lanes = await database.rows<{ lane: number }>('select distinct lane from longshore.jobs')
          await producer.enqueue(tasks[0] === 'one' ? one : limited, 'in its place')
          await producer.change(job, { constraints: { gpu: 'a100' } })
          const believed = asking('claim($1, 5, $2, $3)', (worker, ids) => [
            worker,
            ids,
            lanes.map(({ lane }) => lane),
          ])
          const got = await believed((await workByHand(database, [...tasks])).id, [job.id])
          if (got.length > 0) return 'a worker without the property got the job'
        },
        tells: /a worker without the property got the job/,
      }),
  )

  it.each(byWay)('[X4] %s gives each run a token of its own', (_, { claim, tasks }) =>
    check({
      rule: 'a new lease token with each claim',
      without: { name: 'hand_over', guard: 'new-token', replacement: 'j.lease_token' },
      happens: async () => {
        const { job } = await prepare(tasks)
        const worker = await workByHand(database, tasks)
        expect(await claim(worker.id, [job.id])).toEqual([job.id])
      },
      tells: /^4: .* token 0/m,
    }),
  )

  it('[X4] that looks further gives no lower token than a run had that began and was given back meanwhile', () =>
    check({
      rule: 'the token is drawn under the lock of the job',
      // The second look of a claim whose first found all jobs held.
      given: [{ name: 'claim_lanes', point: 'further', insertion: pauseAt(BARRIER) }],
      without: [
        {
          name: 'claim_lanes',
          point: 'begin',
          insertion: "perform set_config('test.token', nextval('longshore.lease_tokens')::text, true);",
        },
        {
          name: 'hand_over',
          guard: 'new-token',
          replacement:
            "coalesce(nullif(current_setting('test.token', true), '')::bigint, nextval('longshore.lease_tokens'))",
        },
      ],
      happens: async () => {
        const tasks = ['one', 'limited']
        const { producer, job } = await prepare(tasks)
        const others = await producer.enqueueMany(one, [2, 3, 4, 5])
        const last = await producer.enqueue(one, 6)
        const holder = await begin()
        await holder.query('select from longshore.jobs where id = any ($1) for update', [
          [job, ...others].map(({ id }) => id),
        ])
        const worker = await workByHand(database, tasks)
        const { open } = await barrier(BARRIER)
        const client = await begin()
        const claimed = underWay(claim(worker.id, [], client))
        await waitsForLock(database, client)
        const other = await workByHand(database, ['one'])
        const [run] = await database.rows<{ ids: string; lease_tokens: string }>(
          'select ids, lease_tokens from longshore.claim($1, 5, $2, array(select distinct lane from longshore.jobs))',
          [other.id, [last.id]],
        )
        expect(run?.ids).toBe(last.id)
        const token = run?.lease_tokens.split('*')[0]
        await other.settleOthers([{ id: last.id, token, outcome: 'released' }])
        await open()
        await claimed
        await client.query('commit')
        await holder.query('rollback')
      },
      tells: /^3: .* it was claimed with token \d+ after token \d+/m,
    }))

  it.each(functions)(
    '[S7] holds its worker until the commit: no rescue misses what it hands over (%s)',
    (_, claim) =>
      check({
        rule: 'the lock of the worker',
        without: { name: 'claim', guard: 'worker-lock', replacement: 'true' },
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

  it.each(functions)('[S7] hands nothing to a worker that is taken for dead (%s)', (_, claim) =>
    check({
      rule: 'the worker of a claim is alive',
      without: [
        { name: 'claim', guard: 'alive' },
        { name: 'claim_these', guard: 'alive' },
      ],
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

  it.each(functions.flatMap(([way, claim]) => CONDITIONS.map(condition => [way, condition, claim] as const)))(
    '[C6] (%s) asks again what the worker may run: %s',
    (_, condition, claim) =>
      check({
        rule: 'a claim asks for everything again',
        without: { name: 'worker_lanes', guard: condition, replacement: 'true' },
        happens: async () => {
          const job = await deployment.producer().enqueue(one, 1, {
            tag: condition === 'tag' ? 'other' : 'default',
            queue: condition === 'queue' ? 'other' : 'default',
            constraints: condition === 'constraints' ? { gpu: 'a100' } : {},
          })
          const worker = await workByHand(database, [condition === 'task' ? 'two' : 'one'])
          if ((await claim(worker.id, [job.id])).length > 0) return 'it got a job that it may not run'
        },
        tells: /it got a job that it may not run/,
      }),
  )
})

describe('a worker that claims from where it was', () => {
  /** A backlog of ten is claimed by twos; after the first two comes an urgent job. Answers when that was claimed. */
  const drain = async (cursor: Pick<ClaimCursor, 'begin' | 'note'>, onClaim: () => void) => {
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
      cursor.note({
        from,
        isFilled: ids.length === 2,
        isLimited: false,
        worst: worst ? Number(worst) : undefined,
        ms: 1,
      })
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
      note: (claim: ClaimNote) => claim.isFilled && cursor.note(claim),
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
