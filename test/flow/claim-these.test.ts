/** Redis names jobs, Postgres decides: everything is checked again, and each job that is not handed over is answered for. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const plain = defineTask<number>({ name: 'plain' })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

interface Client {
  query(text: string, values: unknown[]): Promise<{ rows: unknown[] }>
}
interface Answer {
  id: string | null
  answer: string
  lane: number
  score: string
  lease_token: string
}

const LANES = 'array(select distinct lane from longshore.jobs where id = any ($2))'

/** What was handed over, then what was refused, then what the claim says of itself. `lanes`: where Redis believes them. */
async function claimThese(
  worker: number,
  ids: readonly string[],
  client?: Client,
  lanes?: readonly number[],
): Promise<Answer[]> {
  const text = `select ids, lanes, scores, lease_tokens, refused, wait from longshore.claim($1, 1000, $2, ${lanes ? '$3' : LANES})`
  const values = [worker, ids, ...(lanes ? [lanes] : [])]
  const [row] = (
    client ? (await client.query(text, values)).rows : await database.rows(text, values)
  ) as Record<'ids' | 'lanes' | 'scores' | 'lease_tokens' | 'refused' | 'wait', string | null>[]
  const list = (column: string | null | undefined) => column?.split(',') ?? []
  const lane = list(row?.lanes)
  const score = list(row?.scores)
  const token = list(row?.lease_tokens).map(run => run.split('*')[0] as string)
  return [
    ...list(row?.ids).map((id, n) => ({
      id,
      answer: 'claimed',
      lane: Number(lane[n] ?? lane[0]),
      score: score[n] as string,
      lease_token: token[0] as string,
    })),
    ...list(row?.refused).map(item => {
      const [id, answer, lane, score, lease_token] = item.split(' ') as [
        string,
        string,
        string,
        string,
        string,
      ]
      return { id, answer, lane: Number(lane), score, lease_token }
    }),
    ...(row?.wait ? [{ id: null, answer: row.wait, lane: 0, score: '', lease_token: '' }] : []),
  ]
}
const said = (answers: Answer[]) => answers.map(({ id, answer }) => [id, answer])

async function enqueued(count: number, task = plain, options = {}) {
  const producer = deployment.producer({ tasks: [task] })
  const refs = await producer.enqueueMany(task, numbers(count), options)
  return { producer, ids: refs.map(ref => ref.id as string) }
}

describe('jobs that Redis names', () => {
  it('[D8] are handed over in order, with one lease token for the call', async () => {
    const { ids } = await enqueued(5)
    const worker = await workByHand(database, ['plain'])
    const answers = await claimThese(worker.id, [...ids].reverse())
    expect(said(answers)).toEqual(ids.map(id => [id, 'claimed']))
    expect(new Set(answers.map(answer => answer.lease_token)).size).toBe(1)
  })

  it('[D8] go to one of two workers that both were given them', async () => {
    const { ids } = await enqueued(20)
    const [one, two] = await Promise.all([workByHand(database, ['plain']), workByHand(database, ['plain'])])
    const [first, second] = await Promise.all([claimThese(one.id, ids), claimThese(two.id, ids)])
    const claimed = [...first, ...second].filter(({ answer }) => answer === 'claimed')
    expect(claimed.map(({ id }) => id).sort()).toEqual([...ids].sort())
    // Once both have committed, what the other has is gone: not answered for.
    expect(await claimThese(one.id, ids)).toEqual([])
  })

  it('[D8] are answered busy while somebody holds them, with their true place', async () => {
    const { ids } = await enqueued(2)
    const [one, two] = await Promise.all([workByHand(database, ['plain']), workByHand(database, ['plain'])])
    const tx = await database.connect()
    await tx.query('begin')
    await claimThese(one.id, ids.slice(0, 1), tx)
    const [job] = await database.rows<{ lane: number; score: string }>(
      'select lane, score from longshore.jobs where id = $1',
      [ids[0]],
    )
    const answers = await claimThese(two.id, ids)
    expect(said(answers)).toEqual([
      [ids[1], 'claimed'],
      [ids[0], 'busy'],
    ])
    expect(answers[1]).toMatchObject({ lane: job?.lane, score: job?.score, lease_token: '0' })
    await tx.query('commit')
  })

  it.each([
    ['a tag that the worker does not offer', ['plain'], ['other'], {}],
    ['a task that the worker has no handler for', ['another'], ['default'], {}],
    ['a property that the worker has another value of', ['plain'], ['default'], { gpu: 'h100' }],
  ] as const)('[C6] of %s are answered moved', async (_, tasks, tags, properties) => {
    const { ids } = await enqueued(1, plain, { constraints: { gpu: 'a100' } })
    const worker = await workByHand(database, [...tasks], [...tags], properties)
    expect(said(await claimThese(worker.id, ids))).toEqual([[ids[0], 'moved']])
    const fits = await workByHand(database, ['plain'], ['default'], { gpu: 'a100' })
    expect(said(await claimThese(fits.id, ids))).toEqual([[ids[0], 'claimed']])
  })

  it('[C6] are not handed over when they are not due, and not answered for when they have ended', async () => {
    const { ids: later } = await enqueued(1, plain, { delay: '1h' })
    const { ids, producer } = await enqueued(1)
    await producer.cancel(ids[0] as string)
    const worker = await workByHand(database, ['plain'])
    expect(await claimThese(worker.id, [...later, ...ids, '00000000-0000-0000-0000-000000000001'])).toEqual(
      [],
    )
  })

  it('[D9] that changed their lane meanwhile go by what they ask for now, whichever comes first', async () => {
    const { ids, producer } = await enqueued(2)
    const worker = await workByHand(database, ['plain'])
    const lanes = await database.rows<{ lane: number }>('select distinct lane from longshore.jobs')
    const claimIn = async (id: string | undefined, client: Client) =>
      said(
        await claimThese(
          worker.id,
          [id as string],
          client,
          lanes.map(({ lane }) => lane),
        ),
      )
    await producer.change(ids[0] as string, { constraints: { gpu: 'a100' } })
    const tx = await database.connect()
    expect(await claimIn(ids[0], tx)).toEqual([[ids[0], 'moved']])
    await tx.query('begin')
    expect(await claimIn(ids[1], tx)).toEqual([[ids[1], 'claimed']])
    const change = producer.change(ids[1] as string, { constraints: { gpu: 'a100' } })
    await tx.query('commit')
    expect(await change).toBe('running')
  })
})

describe('under a limit, jobs that Redis names', () => {
  const limited = defineTask<number>({ name: 'limited', concurrency: 3 })
  const keyed = defineTask<number>({ name: 'keyed', concurrency: 5, concurrencyPerKey: 2 })

  it('[L1] are answered full when no slot is free, and the limit is closed until one is', async () => {
    const { ids } = await enqueued(5, limited)
    const worker = await workByHand(database, ['limited'])
    const answers = await claimThese(worker.id, ids)
    expect(answers.map(({ answer }) => answer)).toEqual(['claimed', 'claimed', 'claimed', 'full', 'full'])
    expect(await database.rows('select is_full from longshore.limits')).toEqual([{ is_full: true }])
    const [first] = answers
    await worker.settle([{ id: first?.id as string, token: first?.lease_token as string }])
    expect(await database.rows('select is_full from longshore.limits')).toEqual([{ is_full: false }])
    expect(said(await claimThese(worker.id, ids.slice(3, 4)))).toEqual([[ids[3], 'claimed']])
  })

  it('[L1] are answered busy, never full, while somebody holds the slots', async () => {
    const { ids } = await enqueued(4, limited)
    const [one, two] = await Promise.all([
      workByHand(database, ['limited']),
      workByHand(database, ['limited']),
    ])
    const tx = await database.connect()
    await tx.query('begin')
    await claimThese(one.id, ids.slice(0, 3), tx)
    expect(said(await claimThese(two.id, ids.slice(3)))).toEqual([[ids[3], 'busy']])
    await tx.query('rollback')
    expect(said(await claimThese(two.id, ids.slice(3)))).toEqual([[ids[3], 'claimed']])
  })

  it('[L8] get both slots or none', async () => {
    const { ids } = await enqueued(4, keyed, { concurrencyKey: 'a' })
    const { ids: others } = await enqueued(4, keyed, { concurrencyKey: 'b' })
    const worker = await workByHand(database, ['keyed'])
    const answers = await claimThese(worker.id, [...ids, ...others])
    expect(answers.filter(({ answer }) => answer === 'claimed')).toHaveLength(4)
    expect(answers.filter(({ answer }) => answer === 'full')).toHaveLength(4)
    const used = await database.rows('select sum(used)::int as used from longshore.slot_groups')
    expect(used).toEqual([{ used: 8 }])
  })

  it('[L5] take over the slots of runs that end in the same call, and leave what they do not need', async () => {
    const { ids } = await enqueued(5, limited)
    const worker = await workByHand(database, ['limited'])
    const running = await claimThese(worker.id, ids.slice(0, 3))
    const sorted = [...running].sort((a, b) => (String(a.id) < String(b.id) ? -1 : 1))
    const [lane] = await database.rows<{ lane: number }>('select distinct lane from longshore.jobs')
    const [answer] = await database.rows<{ ids: string; refused: string | null }>(
      'select ids, refused from longshore.settle_and_claim($1, $2, $3, null, null, 2, $4, $5)',
      [
        worker.id,
        sorted.map(({ id }) => id),
        sorted.map(({ lease_token }) => lease_token),
        ids.slice(3),
        [lane?.lane],
      ],
    )
    expect(answer).toEqual({ ids: ids.slice(3).join(','), refused: null })
    expect(await database.rows('select sum(used)::int as used from longshore.slot_groups')).toEqual([
      { used: 2 },
    ])
  })
})

describe('slots that pass on', () => {
  const settleAndClaim = async (worker: number, ended: readonly Answer[], ids: readonly string[]) => {
    const sorted = [...ended].sort((a, b) => (String(a.id) < String(b.id) ? -1 : 1))
    const [answer] = await database.rows<{ ids: string | null; refused: string | null }>(
      `select ids, refused from longshore.settle_and_claim($1, $2, $3, null, null, cardinality($4::uuid[]), $4,
        array(select distinct lane from longshore.jobs where id = any ($4)))`,
      [worker, sorted.map(({ id }) => id), sorted.map(({ lease_token }) => lease_token), ids],
    )
    return {
      claimed: answer?.ids?.split(',') ?? [],
      refused: (answer?.refused?.split(',') ?? []).map(text => text.split(' ').slice(0, 2)),
    }
  }
  const slots = () =>
    database.rows<{ key: string; used: number }>(
      `select k.key, sum(g.used)::int as used from longshore.limits k join longshore.slot_groups g on g.limit_id = k.id
       group by k.key order by k.key`,
    )

  it('[L5] [L8] go to the next jobs of their keys, and no row of theirs is written; others are freed and taken', async () => {
    const task = defineTask<number>({ name: 'by key', concurrencyPerKey: 1 })
    const { ids: a } = await enqueued(2, task, { concurrencyKey: 'a' })
    const { ids: b } = await enqueued(2, task, { concurrencyKey: 'b' })
    const { ids: c } = await enqueued(1, task, { concurrencyKey: 'c' })
    const worker = await workByHand(database, ['by key'])
    const running = await claimThese(worker.id, [a[0], b[0]] as string[])
    const versions = () =>
      database.rows<{ key: string; xmin: string }>(
        'select k.key, g.xmin::text from longshore.slot_groups g join longshore.limits k on k.id = g.limit_id order by k.key',
      )
    const before = await versions()
    const { claimed } = await settleAndClaim(worker.id, running, [a[1], c[0]] as string[])
    expect(claimed).toEqual([a[1], c[0]])
    expect(await slots()).toEqual([
      { key: 'a', used: 1 },
      { key: 'b', used: 0 },
      { key: 'c', used: 1 },
    ])
    expect((await versions())[0]).toEqual(before[0])
    expect((await versions())[1]).not.toEqual(before[1])
  })

  it('[L5] are free again, and their limit open, when the jobs that were to have them are held by somebody', async () => {
    const task = defineTask<number>({ name: 'two', concurrency: 2 })
    const { ids } = await enqueued(4, task)
    const [one, two] = await Promise.all([workByHand(database, ['two']), workByHand(database, ['two'])])
    const running = await claimThese(one.id, ids.slice(0, 1))
    await claimThese(two.id, ids.slice(1, 2))
    expect(said(await claimThese(two.id, ids.slice(3)))).toEqual([[ids[3], 'full']])
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select from longshore.jobs where id = $1 for update', [ids[2]])
    expect(await settleAndClaim(one.id, running, ids.slice(2, 3))).toEqual({
      claimed: [],
      refused: [[ids[2], 'busy']],
    })
    await tx.query('rollback')
    expect(await slots()).toEqual([{ key: '', used: 1 }])
    expect(await database.rows('select is_full from longshore.limits')).toEqual([{ is_full: false }])
  })

  it('[L6] do not while a lowered limit drains', async () => {
    const task = defineTask<number>({ name: 'lowered', concurrency: 3 })
    const { ids } = await enqueued(5, task)
    const worker = await workByHand(database, ['lowered'])
    const running = await claimThese(worker.id, ids.slice(0, 3))
    const lowered = {
      name: 'lowered',
      queue: 'default',
      tag: 'default',
      maxAttempts: 3,
      maxRescues: 10,
      concurrency: 1,
    }
    await database.rows('select longshore.register_tasks($1)', [JSON.stringify([lowered])])
    const { claimed, refused } = await settleAndClaim(worker.id, running.slice(0, 1), ids.slice(3, 4))
    expect(claimed).toEqual([])
    expect(refused).toEqual([[ids[3], 'full']])
    expect(await slots()).toEqual([{ key: '', used: 2 }])
  })
})

describe('a worker that is given jobs', () => {
  it('[S7] while it is being rescued gets none; the rescue does not miss what a claim in flight hands over', async () => {
    const { ids } = await enqueued(2)
    const worker = await workByHand(database, ['plain'])
    const claiming = await database.connect()
    await claiming.query('begin')
    expect(said(await claimThese(worker.id, ids.slice(0, 1), claiming))).toEqual([[ids[0], 'claimed']])
    await database.rows("update longshore.workers set expires_at = now() - interval '1 hour'")
    const rescuing = await database.connect()
    await rescuing.query('begin')
    await rescuing.query("set local lock_timeout = '10s'")
    const rescue = rescuing.query('select * from longshore.rescue(1000000, 100)')
    // The rescue's own lock_timeout ends its wait; the claim commits, and the next rescue finds the job.
    await rescue
    await rescuing.query('commit')
    await claiming.query('commit')
    const [rescued] = await database.rows<{ rescued: number }>('select * from longshore.rescue(1000000, 100)')
    expect(rescued?.rescued).toBe(1)
    expect(said(await claimThese(worker.id, ids))).toEqual([[null, 'dead']])
  })

  it('[S7] while its rescue is under way is answered busy', async () => {
    const { ids } = await enqueued(1)
    const worker = await workByHand(database, ['plain'])
    await database.rows("update longshore.workers set expires_at = now() - interval '1 hour'")
    const rescuing = await database.connect()
    await rescuing.query('begin')
    await rescuing.query('select * from longshore.rescue(1000000, 100)')
    expect(said(await claimThese(worker.id, ids))).toEqual([[ids[0], 'busy']])
    await rescuing.query('commit')
    expect(said(await claimThese(worker.id, ids))).toEqual([[null, 'dead']])
  })

  it('[S7] without the guard a job is handed to a worker that is dead, and nobody would rescue it', async () => {
    deployment.skipAudit('a job runs under a worker that is gone')
    const { ids } = await enqueued(1)
    const worker = await workByHand(database, ['plain'])
    await database.rows("update longshore.workers set expires_at = now() - interval '1 hour'")
    await weakened(
      database,
      [
        { name: 'claim', guard: 'worker-lock', replacement: 'true' },
        { name: 'claim_these', point: 'locked', insertion: pauseAt(4711) },
      ],
      async () => {
        const barrier = await database.connect()
        await barrier.query('select pg_advisory_lock(4711)')
        const claiming = await database.connect()
        const claim = claimThese(worker.id, ids, claiming)
        await waitsForLock(database, claiming)
        await database.rows('select * from longshore.rescue(1000000, 100)')
        await barrier.query('select pg_advisory_unlock(4711)')
        expect(said(await claim)).toEqual([[ids[0], 'claimed']])
        expect(await database.rows('select from longshore.workers')).toEqual([])
      },
    )
  })
})
