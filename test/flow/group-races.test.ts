import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import type { Queryable } from '../../src/job/queryable.ts'
import { auditPostgres } from '../../src/postgres/audit.ts'
import { lead } from '../../src/upkeep/lead.ts'
import { createGroupSweep } from '../../src/upkeep/sweep-groups.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { type Graph, statesOf, submitGraph } from '../support/submit-graph.ts'
import { pauseAt, type Weakness, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<string, string>({
  name: 'step',
  retry: { maxAttempts: 1, maxRescues: 0 },
})

const BARRIER = 4711
/** A settle that waits as long as the test takes, instead of leaving what is held to the careful way. */
const PATIENT: Weakness = { name: 'settle', setting: 'lock_timeout', value: '20s' }

/** A failure that does not look whether what it needs is held, and so waits for it. */
const LOOKS_NOT: Weakness = { name: 'end_linked', guard: 'look-first' }

async function running<Name extends string>(graph: Graph<NoInfer<Name>> & Record<Name, unknown>) {
  const producer = deployment.producer({ tasks: [step] })
  const { group, jobs } = await submitGraph<Name>(producer, step, graph)
  const worker = await workByHand(database, ['step'])
  const claims = new Map((await worker.claim(100)).map(claim => [claim.payload as Name, claim]))
  const claimOf = (name: Name) => {
    const claim = claims.get(name)
    if (!claim) throw new Error(`${name} is not claimed`)
    return claim
  }
  return {
    producer,
    group,
    jobs,
    worker,
    claimOf,
    states: () => statesOf(database, group),
    settle: (names: Name[], client?: TestClient) =>
      worker.settle(
        names.map(name => settling(claimOf(name))),
        client,
      ),
    fail: (names: Name[], client?: TestClient) =>
      worker.settleOthers(
        names.map(name => ({
          ...settling(claimOf(name)),
          outcome: 'failed',
          error: { code: 'X', message: 'no' },
        })),
        client,
      ),
    claim: async (limit = 100) => {
      const claimed = await worker.claim(limit)
      for (const claim of claimed) claims.set(claim.payload as Name, claim)
      return claimed.map(claim => claim.payload as Name).sort()
    },
    /** An open transaction. */
    begin: async () => {
      const client = await database.connect()
      await client.query('begin')
      return client
    },
  }
}

const endOf = async (id: string) =>
  (
    await database.rows<{ end_state: string | null; succeeded: number; failed: number; cancelled: number }>(
      'select end_state, succeeded, failed, cancelled from longshore.groups where id = $1',
      [id],
    )
  )[0]

const close = (id: string, client?: TestClient) =>
  client
    ? client.query('select * from longshore.close_groups(array[$1]::uuid[])', [id]).then(({ rows }) => rows)
    : database.rows('select * from longshore.close_groups(array[$1]::uuid[])', [id])

const problems = async (invariant: number) =>
  (
    await auditPostgres({
      query: async (text: string, values?: unknown[]) => ({ rows: await database.rows(text, values) }),
    })
  ).filter(violation => violation.invariant === invariant)

describe('two parents that end at once', () => {
  it.each([
    ['left', 'right'],
    ['right', 'left'],
  ] as const)('[S3] %s first: the child is released once, by the second', async (first, second) => {
    const { settle, states, claim, begin } = await running({ left: [], right: [], child: ['left', 'right'] })
    await weakened(database, [PATIENT], async () => {
      const [one, two] = [await begin(), await begin()]
      expect(await settle([first], one)).toEqual([])
      const settled = settle([second], two)
      await waitsForLock(database, two)
      await one.query('commit')
      expect(await settled).toEqual([])
      expect((await states())['child']).toBe('waiting')
      await two.query('commit')
    })
    expect((await states())['child']).toBe('ready')
    expect(await claim()).toEqual(['child'])
    expect(await settle(['child'])).toEqual([])
  })

  it('[S3] the second does not wait for the first: it is busy, and settles when that has ended', async () => {
    const { settle, jobs, states, begin } = await running({ left: [], right: [], child: ['left', 'right'] })
    const one = await begin()
    await settle(['left'], one)
    expect(await settle(['right'])).toEqual([{ id: jobs.right.id, answer: 'busy' }])
    await one.query('commit')
    expect(await settle(['right'])).toEqual([])
    expect((await states())['child']).toBe('ready')
  })

  it('[S3] a parent that is taken back by a rollback is counted again', async () => {
    const { settle, states, begin } = await running({ left: [], right: [], child: ['left', 'right'] })
    const one = await begin()
    await settle(['left', 'right'], one)
    await one.query('rollback')
    expect(await states()).toEqual({ left: 'running', right: 'running', child: 'waiting' })
    expect(await settle(['left'])).toEqual([])
    expect((await states())['child']).toBe('waiting')
    expect(await settle(['right'])).toEqual([])
    expect((await states())['child']).toBe('ready')
  })

  it('[S3] [S1] in one batch they count as two; again they count as nothing', async () => {
    const graph = { left: [], right: [], child: ['left', 'right'] } as const
    const { settle, states } = await running(graph)
    for (let time = 0; time < 2; time++) {
      expect(await settle(['left', 'right'])).toEqual([])
      expect(await states()).toEqual({ left: 'succeeded', right: 'succeeded', child: 'ready' })
    }
  })

  it('[S3] (red) without counting before subtracting the child waits for ever', async () => {
    deployment.skipAudit('a child waits for nothing')
    const { settle, states } = await running({ left: [], right: [], child: ['left', 'right'] })
    await weakened(database, [{ name: 'pass_on', guard: 'count-parents', replacement: '1' }], () =>
      settle(['left', 'right']),
    )
    expect((await states())['child']).toBe('waiting')
    expect(await problems(6)).toHaveLength(1)
  })

  it('[S3] with two children each, in opposite order of their edges, they do not stop each other', async () => {
    const { settle, states, begin } = await running({ a: [], b: [], x: ['a', 'b'], y: ['b', 'a'] })
    await weakened(database, [PATIENT], async () => {
      const [one, two] = [await begin(), await begin()]
      await settle(['a'], one)
      const settled = settle(['b'], two)
      await waitsForLock(database, two)
      await one.query('commit')
      expect(await settled).toEqual([])
      await two.query('commit')
    })
    expect(await states()).toMatchObject({ x: 'ready', y: 'ready' })
  })

  it('[S3] (red) without locks in order they do', async () => {
    const { settle, jobs, begin } = await running({ a: [], b: [], x: ['a', 'b'], y: ['a', 'b'] })
    // The first takes x and, behind the barrier, y; the second y and then x.
    const lock = (id: string) => `perform from longshore.jobs where id = '${id}' for no key update;`
    const inOrderOf = `if exists (select from unnest(p_ids) as p(id) where p.id = '${jobs.a.id}') then
        ${lock(jobs.x.id)} ${pauseAt(BARRIER)} ${lock(jobs.y.id)}
      else
        ${lock(jobs.y.id)} ${lock(jobs.x.id)}
      end if;`
    const holder = await database.connect()
    await holder.query('select pg_advisory_lock($1)', [BARRIER])
    await weakened(
      database,
      [PATIENT, { name: 'pass_on', guard: 'children-in-order', replacement: inOrderOf }],
      async () => {
        const [one, two] = [await begin(), await begin()]
        const ends = [settle(['a'], one)]
        await waitsForLock(database, one)
        ends.push(settle(['b'], two))
        await waitsForLock(database, two)
        await holder.query('select pg_advisory_unlock($1)', [BARRIER])
        const codes = (await Promise.allSettled(ends)).map(end =>
          end.status === 'rejected' ? (end.reason as { code: string }).code : 'settled',
        )
        expect(codes.sort()).toEqual(['40P01', 'settled'])
        for (const client of [one, two]) await client.query('rollback')
      },
    )
  })
})

describe('a child that is added while its parent ends', () => {
  const WITHOUT_KEY_SHARE: Weakness = { name: 'add_to_group', guard: 'parent-locks' }

  const addFirst = async () => {
    const run = await running({ parent: [] })
    const tx = await run.begin()
    const more = run.producer.addToGroup(run.group)
    more.add(step, 'child', { after: run.jobs.parent })
    await more.submit({ tx })
    return { ...run, tx }
  }

  const endFirst = async () => {
    const run = await running({ parent: [] })
    const [settling, adding] = [await run.begin(), await run.begin()]
    await run.settle(['parent'], settling)
    const more = run.producer.addToGroup(run.group)
    more.add(step, 'child', { after: run.jobs.parent })
    return { ...run, settling, adding, submit: () => more.submit({ tx: adding }) }
  }

  it('[S3] added first: the parent ends after the commit, and the child is ready', async () => {
    const { settle, jobs, tx, states } = await addFirst()
    expect(await settle(['parent'])).toEqual([{ id: jobs.parent.id, answer: 'busy' }])
    await tx.query('commit')
    expect(await settle(['parent'])).toEqual([])
    expect(await states()).toEqual({ parent: 'succeeded', child: 'ready' })
  })

  it('[S4] added first to a parent that fails: it ends with it', async () => {
    const { fail, jobs, tx, states } = await addFirst()
    expect(await fail(['parent'])).toEqual([{ id: jobs.parent.id, answer: 'busy' }])
    await tx.query('commit')
    expect(await fail(['parent'])).toEqual([])
    expect(await states()).toEqual({ parent: 'failed', child: 'dependency_failed' })
  })

  it('[S3] added first and rolled back: the parent ends alone', async () => {
    const { settle, tx, states } = await addFirst()
    await tx.query('rollback')
    expect(await settle(['parent'])).toEqual([])
    expect(await states()).toEqual({ parent: 'succeeded' })
  })

  it('[S3] added first, by a settle that waits: it sees the child', async () => {
    const { settle, tx, states, begin } = await addFirst()
    await weakened(database, [PATIENT], async () => {
      const two = await begin()
      const settled = settle(['parent'], two)
      await waitsForLock(database, two)
      await tx.query('commit')
      expect(await settled).toEqual([])
      await two.query('commit')
    })
    expect(await states()).toEqual({ parent: 'succeeded', child: 'ready' })
  })

  it('[S3] (red) edges that are read in the statement that ends the parent miss the child', async () => {
    deployment.skipAudit('a child waits for nothing')
    const { settle, tx, states, begin } = await addFirst()
    const known = "pg_visible_in_snapshot(e.xmin::text::xid8, current_setting('test.seen')::pg_snapshot)"
    await weakened(
      database,
      [
        PATIENT,
        {
          name: 'settle',
          point: 'start',
          insertion: "perform set_config('test.seen', pg_current_snapshot()::text, true);",
        },
        { name: 'pass_on', point: 'edges-seen', insertion: `and ${known}` },
      ],
      async () => {
        const two = await begin()
        const settled = settle(['parent'], two)
        await waitsForLock(database, two)
        await tx.query('commit')
        await settled
        await two.query('commit')
      },
    )
    expect(await states()).toEqual({ parent: 'succeeded', child: 'waiting' })
    expect(await problems(6)).toHaveLength(1)
  })

  it('[S3] (red) added first without the lock on its parent, it waits for ever', async () => {
    deployment.skipAudit('a child waits for nothing')
    await weakened(database, [WITHOUT_KEY_SHARE], async () => {
      const { settle, tx, states } = await addFirst()
      expect(await settle(['parent'])).toEqual([])
      await tx.query('commit')
      expect(await states()).toEqual({ parent: 'succeeded', child: 'waiting' })
    })
    expect(await problems(6)).toHaveLength(1)
  })

  it('[S3] ended first: the child is ready at once', async () => {
    const { submit, settling, adding, states } = await endFirst()
    const submitted = submit()
    await waitsForLock(database, adding)
    await settling.query('commit')
    expect(await submitted).toMatchObject({ isNew: true })
    await adding.query('commit')
    expect(await states()).toEqual({ parent: 'succeeded', child: 'ready' })
  })

  it('[S3] ended first and rolled back: the child waits', async () => {
    const { submit, settling, adding, states, settle } = await endFirst()
    const submitted = submit()
    await waitsForLock(database, adding)
    await settling.query('rollback')
    await submitted
    await adding.query('commit')
    expect(await states()).toEqual({ parent: 'running', child: 'waiting' })
    await settle(['parent'])
    expect(await states()).toEqual({ parent: 'succeeded', child: 'ready' })
  })

  it('[S3] (red) ended first, without the lock on the parent, the child waits for ever', async () => {
    deployment.skipAudit('a child waits for nothing')
    await weakened(database, [WITHOUT_KEY_SHARE], async () => {
      const { submit, settling, adding, states } = await endFirst()
      await submit()
      await settling.query('commit')
      await adding.query('commit')
      expect(await states()).toEqual({ parent: 'succeeded', child: 'waiting' })
    })
    expect(await problems(6)).toHaveLength(1)
  })

  it.each(['repeatable read', 'serializable'])(
    '[X1] a %s transaction that cannot see the end must try again',
    async isolation => {
      const { producer, group, jobs, settle } = await running({ parent: [] })
      const tx = await database.connect()
      await tx.query(`begin isolation level ${isolation}`)
      await tx.query('select 1')
      await settle(['parent'])
      const more = producer.addToGroup(group)
      more.add(step, 'child', { after: jobs.parent })
      await expect(more.submit({ tx })).rejects.toMatchObject({ code: '40001' })
      await tx.query('rollback')
    },
  )

  it.each(['repeatable read', 'serializable'])(
    '[S5] a %s transaction that cannot see the end of the group must try again',
    async isolation => {
      const { producer, group, settle } = await running({ parent: [] })
      const tx = await database.connect()
      await tx.query(`begin isolation level ${isolation}`)
      await tx.query('select 1')
      await settle(['parent'])
      await close(group.id)
      const more = producer.addToGroup(group)
      more.add(step, 'late')
      await expect(more.submit({ tx })).rejects.toMatchObject({ code: '40001' })
      await tx.query('rollback')
    },
  )
})

describe('a child that is added below one that is doomed', () => {
  const begin = async () => {
    const run = await running({ top: [], middle: ['top'] })
    const tx = await run.begin()
    const more = run.producer.addToGroup(run.group)
    more.add(step, 'child', { after: run.jobs.middle })
    await more.submit({ tx })
    return { ...run, tx }
  }
  it('[S4] whoever ends the parent waits, looks again, and dooms it too', async () => {
    const run = await begin()
    const cancelling = await run.begin()
    const cancelled = run.producer.cancel(run.jobs.middle, { tx: cancelling })
    await waitsForLock(database, cancelling)
    await run.tx.query('commit')
    expect(await cancelled).toBe('cancelled')
    await cancelling.query('commit')
    expect(await run.states()).toEqual({ top: 'running', middle: 'cancelled', child: 'dependency_failed' })
    await run.settle(['top'])
  })

  it('[S4] a failure far above finds it', async () => {
    const run = await begin()
    // Slow, so that the failure waits for the lock on the doomed job in its own statement.
    await weakened(database, [PATIENT, LOOKS_NOT], async () => {
      const failing = await run.begin()
      const failed = run.fail(['top'], failing)
      await waitsForLock(database, failing)
      await run.tx.query('commit')
      expect(await failed).toEqual([])
      await failing.query('commit')
    })
    expect(await run.states()).toEqual({
      top: 'failed',
      middle: 'dependency_failed',
      child: 'dependency_failed',
    })
  })

  it('[S4] (red) without looking again it waits for ever', async () => {
    deployment.skipAudit('a child waits for nothing')
    const run = await begin()
    await weakened(
      database,
      [PATIENT, LOOKS_NOT, { name: 'pass_on', point: 'doomed-held', insertion: 'exit;' }],
      async () => {
        const failing = await run.begin()
        const failed = run.fail(['top'], failing)
        await waitsForLock(database, failing)
        await run.tx.query('commit')
        await failed
        await failing.query('commit')
      },
    )
    expect(await run.states()).toMatchObject({ middle: 'dependency_failed', child: 'waiting' })
    expect((await problems(6)).length + (await problems(7)).length).toBeGreaterThan(0)
  })
})

describe('somebody who holds what is needed', () => {
  it('[S9] a batch goes on without the job whose child is held; that one settles later', async () => {
    const { settle, states, jobs, begin } = await running({
      a: [],
      b: [],
      c: [],
      x: ['a'],
      y: ['b'],
      z: ['c'],
    })
    const holder = await begin()
    await holder.query('select from longshore.jobs where id = $1 for update', [jobs.y.id])
    expect(await settle(['a', 'b', 'c'])).toEqual([{ id: jobs.b.id, answer: 'busy' }])
    expect(await states()).toEqual({
      a: 'succeeded',
      b: 'running',
      c: 'succeeded',
      x: 'ready',
      y: 'waiting',
      z: 'ready',
    })
    await holder.query('rollback')
    expect(await settle(['b'])).toEqual([])
    expect((await states())['y']).toBe('ready')
  })

  it('[S9] failures go on without the one whose child is held', async () => {
    const { fail, states, jobs, begin } = await running({ a: [], b: [], x: ['a'], y: ['b'] })
    const holder = await begin()
    await holder.query('select from longshore.jobs where id = $1 for update', [jobs.x.id])
    expect(await fail(['a', 'b'])).toEqual([{ id: jobs.a.id, answer: 'busy' }])
    await holder.query('rollback')
    expect(await fail(['a'])).toEqual([])
    expect(await states()).toMatchObject({ x: 'dependency_failed', y: 'dependency_failed' })
  })

  it('[S9] a grandchild that is held holds up its own branch only', async () => {
    const { fail, states, jobs, begin } = await running({ a: [], b: [], x: ['a'], y: ['x'], z: ['b'] })
    const holder = await begin()
    await holder.query('select from longshore.jobs where id = $1 for update', [jobs.y.id])
    expect(await fail(['a', 'b'])).toEqual([{ id: jobs.a.id, answer: 'busy' }])
    expect(await states()).toEqual({
      a: 'running',
      b: 'failed',
      x: 'waiting',
      y: 'waiting',
      z: 'dependency_failed',
    })
    await holder.query('rollback')
    expect(await fail(['a'])).toEqual([])
    expect(await states()).toMatchObject({ x: 'dependency_failed', y: 'dependency_failed' })
  })

  it('[S7] a rescue leaves the job whose child is held for the next time', async () => {
    const { worker, states, jobs, begin } = await running({ a: [], x: ['a'] })
    const rescue = () => database.rows('select rescued, ended, is_gone from longshore.rescue(3600000, 1000)')
    await database.rows(
      "update longshore.workers set expires_at = now() - interval '1 second' where id = $1",
      [worker.id],
    )
    const holder = await begin()
    await holder.query('select from longshore.jobs where id = $1 for update', [jobs.x.id])
    expect(await rescue()).toEqual([{ rescued: 0, ended: 0, is_gone: false }])
    await holder.query('rollback')
    expect(await rescue()).toEqual([{ rescued: 0, ended: 1, is_gone: true }])
    expect(await states()).toEqual({ a: 'failed', x: 'dependency_failed' })
    expect(await rescue()).toEqual([])
  })
})

describe('the end of a group', () => {
  it.each([
    ['a', 'b'],
    ['b', 'a'],
  ] as const)(
    '[S5] two last jobs in two transactions, %s commits first: written once',
    async (first, second) => {
      const { settle, group, begin } = await running({ a: [], b: [] })
      const [one, two] = [await begin(), await begin()]
      await settle([first], one)
      await settle([second], two)
      expect(await close(group.id)).toEqual([])
      await one.query('commit')
      expect(await close(group.id)).toEqual([])
      await two.query('commit')
      expect(await close(group.id)).toEqual([{ id: group.id, state: 'succeeded' }])
      expect(await close(group.id)).toEqual([])
      expect(await endOf(group.id)).toMatchObject({ end_state: 'succeeded', succeeded: 2 })
    },
  )

  it('[S5] written in two transactions at once: once', async () => {
    const { settle, group, begin } = await running({ a: [] })
    await settle(['a'])
    const [one, two] = [await begin(), await begin()]
    expect(await close(group.id, one)).toHaveLength(1)
    expect(await close(group.id, two)).toEqual([])
    await one.query('commit')
    expect(await close(group.id, two)).toEqual([])
    await two.query('commit')
    expect(await endOf(group.id)).toMatchObject({ end_state: 'succeeded', succeeded: 1 })
  })

  it('[S5] (red) without asking whether it has ended it is written twice', async () => {
    const { settle, group } = await running({ a: [] })
    await settle(['a'])
    await weakened(database, [{ name: 'close_groups', guard: 'not-ended' }], async () => {
      await close(group.id)
      expect(await close(group.id)).toHaveLength(1)
    })
    expect(await endOf(group.id)).toMatchObject({ succeeded: 2 })
  })

  /** One looks while the other's last job has not committed; the other looks while the first has not let go. */
  const closeTogether = async () => {
    const { settle, group, begin } = await running({ a: [], b: [] })
    await settle(['a'])
    const [last, slow] = [await begin(), await begin()]
    await settle(['b'], last)
    await close(group.id, slow)
    await last.query('commit')
    await close(group.id)
    await slow.query('commit')
    return endOf(group.id)
  }

  it('[S5] who looks too early is not in the way of who looks in time', async () => {
    expect(await closeTogether()).toMatchObject({ end_state: 'succeeded', succeeded: 2 })
  })

  it('[S5] (red) who holds a group that has not ended is in the way, and only the sweep closes it', async () => {
    await weakened(database, [{ name: 'close_groups', guard: 'only-empty' }], async () =>
      expect(await closeTogether()).toMatchObject({ end_state: null }),
    )
    await database.rows("select longshore.sweep_groups('00000000-0000-0000-0000-000000000000', 10)")
    expect(await database.rows('select from longshore.groups where finished_at is null')).toEqual([])
  })

  /** A job is added and committed between the look for jobs and the lock. */
  const addWhileClosing = async (weaknesses: Weakness[]) => {
    const { settle, group, producer, begin } = await running({ a: [] })
    await settle(['a'])
    const holder = await database.connect()
    await holder.query('select pg_advisory_lock($1)', [BARRIER])
    await weakened(
      database,
      [
        {
          name: 'close_groups',
          point: 'before-lock',
          insertion: `and pg_advisory_xact_lock_shared(${BARRIER}) is not null`,
        },
        ...weaknesses,
      ],
      async () => {
        const closer = await begin()
        const closed = close(group.id, closer)
        await waitsForLock(database, closer)
        const more = producer.addToGroup(group)
        more.add(step, 'late')
        await more.submit()
        await holder.query('select pg_advisory_unlock($1)', [BARRIER])
        await closed
        await closer.query('commit')
      },
    )
    return endOf(group.id)
  }

  it('[S5] a job that is added while it is being closed keeps it open', async () => {
    expect(await addWhileClosing([])).toMatchObject({ end_state: null })
  })

  it('[S5] (red) without looking again under the lock it ends with a job in it', async () => {
    deployment.skipAudit('a group has ended with a job in it')
    expect(await addWhileClosing([{ name: 'close_groups', guard: 'look-again' }])).toMatchObject({
      end_state: 'succeeded',
    })
    expect(await problems(7)).toHaveLength(1)
  })

  it('[S5] an open transaction that adds keeps it open; whether it commits or not, it ends', async () => {
    for (const end of ['commit', 'rollback']) {
      const { settle, group, producer, claim, begin } = await running({ a: [] })
      const tx = await begin()
      const more = producer.addToGroup(group)
      more.add(step, 'late')
      await more.submit({ tx })
      await settle(['a'])
      expect(await close(group.id)).toEqual([])
      await tx.query(end)
      if (end === 'commit') {
        expect(await close(group.id)).toEqual([])
        expect(await claim()).toEqual(['late'])
        await settle(['late' as 'a'])
      }
      await database.rows("select longshore.sweep_groups('00000000-0000-0000-0000-000000000000', 10)")
      expect(await endOf(group.id)).toMatchObject({
        end_state: 'succeeded',
        succeeded: end === 'commit' ? 2 : 1,
      })
    }
  })

  it('[S5] waits for a closer, then says that the group has ended', async () => {
    const { settle, group, producer, begin } = await running({ a: [] })
    await settle(['a'])
    const [closer, tx] = [await begin(), await begin()]
    await close(group.id, closer)
    const more = producer.addToGroup(group)
    more.add(step, 'late')
    const added = more.submit({ tx })
    added.catch(() => undefined)
    await waitsForLock(database, tx)
    await closer.query('commit')
    await expect(added).rejects.toMatchObject({ code: 'GROUP_ENDED' })
    await tx.query('rollback')
  })

  it('[S5] the sweep goes through all groups, page by page', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const worker = await workByHand(database, ['step'])
    const ids: string[] = []
    for (let n = 0; n < 5; n++) ids.push((await submitGraph(producer, step, { a: [] })).group.id)
    for (const claim of await worker.claim(4)) await worker.settle([settling(claim)])
    const pages: (string | null)[] = []
    for (let after: string | null = '00000000-0000-0000-0000-000000000000'; after; ) {
      const [row]: { last: string | null }[] = await database.rows<{ last: string | null }>(
        'select longshore.sweep_groups($1, 2) as last',
        [after],
      )
      after = row?.last ?? null
      pages.push(after)
    }
    expect(pages).toEqual([ids[1], ids[3], null])
    expect(await database.rows('select from longshore.groups where finished_at is not null')).toHaveLength(4)
  })

  it('[X12] the leader looks at page after page for as long as a round may take', async () => {
    deployment.skipAudit('its groups are rows that no producer has made')
    // 2,500 groups with a job each, and one behind them whose job has ended.
    await database.rows(`
      with made as (
        insert into longshore.groups (id) select lpad(to_hex(n), 32, '0')::uuid from generate_series(1, 2501) n returning id
      )
      insert into longshore.jobs (id, lane, score, state, max_attempts, payload, group_id)
      select longshore.new_id(), longshore.make_lane('default', 'step', 'default', 'c:', ''), 1, 'ready', 3, '1', m.id
      from made m where m.id <> lpad(to_hex(2501), 32, '0')::uuid`)
    const client = await database.connect()
    const holder = { name: 'sweeper', secret: null }
    await lead(client, 'longshore', holder, 15_000, 'worker')
    let pages = 0
    const counting: Queryable = {
      query: (text, values) => {
        pages++
        return client.query(text, values as unknown[])
      },
    }
    const isClosed = async () =>
      (await database.rows('select from longshore.groups where finished_at is not null')).length === 1
    // One page takes as long as a round may.
    let now = 0
    const slow = createGroupSweep(counting, 'longshore', holder, () => {
      now += 100
      return now
    })
    await slow()
    await slow()
    expect([pages, await isClosed()]).toEqual([2, false])
    await createGroupSweep(counting, 'longshore', holder, () => 0)()
    expect([pages, await isClosed()]).toEqual([5, true])
    await database.rows('delete from longshore.jobs; delete from longshore.groups')
  })
})

describe('cancelling a group', () => {
  const cancel = async (id: string, client?: TestClient) =>
    (client
      ? (await client.query('select longshore.cancel_group($1) as answer', [id])).rows
      : await database.rows<{ answer: string }>('select longshore.cancel_group($1) as answer', [id]))[0]
      .answer as string

  it('[S13] while a job of it is settled: it waits, and cancels what that made ready', async () => {
    const { settle, group, begin, states } = await running({ a: [], b: ['a'], c: ['b'] })
    const [settling, cancelling] = [await begin(), await begin()]
    await settle(['a'], settling)
    const cancelled = cancel(group.id, cancelling)
    await waitsForLock(database, cancelling)
    await settling.query('commit')
    expect(await cancelled).toBe('cancelled')
    await cancelling.query('commit')
    expect(await states()).toEqual({ a: 'succeeded', b: 'cancelled', c: 'cancelled' })
    expect(await endOf(group.id)).toMatchObject({ end_state: 'cancelled', succeeded: 1, cancelled: 2 })
  })

  it('[S13] and a job of it is settled meanwhile: it is busy, then ends as cancelled', async () => {
    const { settle, group, jobs, begin, states } = await running({ a: [], b: ['a'] })
    const cancelling = await begin()
    expect(await cancel(group.id, cancelling)).toBe('cancelling')
    expect(await settle(['a'])).toEqual([{ id: jobs.a.id, answer: 'busy' }])
    await cancelling.query('commit')
    expect(await settle(['a'])).toEqual([])
    expect(await settle(['a'])).toEqual([])
    expect(await states()).toEqual({ a: 'cancelled', b: 'cancelled' })
    expect(await close(group.id)).toEqual([{ id: group.id, state: 'cancelled' }])
  })

  it('[S13] waits for who adds to it, says who is in the way, and nothing is added afterwards', async () => {
    const { group, producer, begin } = await running({ a: [] })
    const [adding, cancelling, late] = [await begin(), await begin(), await begin()]
    const more = producer.addToGroup(group)
    more.add(step, 'b')
    await more.submit({ tx: adding })
    await expect(producer.cancelGroup(group, { tx: cancelling })).rejects.toMatchObject({
      code: '55P03',
      message: expect.stringContaining(`somebody holds group ${group.id} or one of its jobs`),
    })
    await cancelling.query('rollback')
    await adding.query('commit')
    await cancelling.query('begin')
    expect(await producer.cancelGroup(group, { tx: cancelling })).toBe('cancelling')
    const another = producer.addToGroup(group)
    another.add(step, 'c')
    const added = another.submit({ tx: late })
    added.catch(() => undefined)
    await waitsForLock(database, late)
    await cancelling.query('commit')
    await expect(added).rejects.toMatchObject({
      code: 'GROUP_ENDED',
      message: expect.stringContaining('Submit a new group'),
    })
    await late.query('rollback')
    expect(await statesOf(database, group)).toEqual({ a: 'running', b: 'cancelled' })
  })

  it('[S13] whose submission has not been committed is not known', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const tx = await database.connect()
    await tx.query('begin')
    const group = producer.group()
    group.add(step, 'a')
    await group.submit({ tx })
    expect(await producer.cancelGroup(group)).toBe('unknown')
    expect(await producer.cancelGroup(group, { tx })).toBe('cancelled')
    await tx.query('commit')
    expect(await producer.getGroup(group)).toMatchObject({ state: 'cancelled', counts: { cancelled: 1 } })
  })

  it('[S13] [S7] whose worker dies leaves its job cancelled, not requeued', async () => {
    const { group, worker, states } = await running({ a: [], b: ['a'] })
    expect(await cancel(group.id)).toBe('cancelling')
    await database.rows(
      "update longshore.workers set expires_at = now() - interval '1 second' where id = $1",
      [worker.id],
    )
    await database.rows('select longshore.rescue(3600000, 1000)')
    expect(await states()).toEqual({ a: 'cancelled', b: 'cancelled' })
    await database.rows("select longshore.sweep_groups('00000000-0000-0000-0000-000000000000', 10)")
    expect(await endOf(group.id)).toMatchObject({ end_state: 'cancelled', cancelled: 2 })
  })

  it('[S13] while a rescue gives its job back: it cancels that too', async () => {
    const patient = defineTask<string, string>({ name: 'patient' })
    const producer = deployment.producer({ tasks: [patient] })
    const { group } = await submitGraph(producer, patient, { a: [], b: ['a'] })
    const worker = await workByHand(database, ['patient'])
    await worker.claim(1)
    await database.rows(
      "update longshore.workers set expires_at = now() - interval '1 second' where id = $1",
      [worker.id],
    )
    const [rescuing, cancelling] = [await database.connect(), await database.connect()]
    await rescuing.query('begin')
    await rescuing.query('select longshore.rescue(3600000, 1000)')
    const cancelled = cancel(group.id, cancelling)
    await waitsForLock(database, cancelling)
    await rescuing.query('commit')
    expect(await cancelled).toBe('cancelled')
    expect(await statesOf(database, group)).toEqual({ a: 'cancelled', b: 'cancelled' })
    const other = await workByHand(database, ['patient'])
    expect(await other.claim(10)).toEqual([])
  })

  it('[S13] while a claim takes its jobs: they run, and end as cancelled', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { group } = await submitGraph(producer, step, { a: [], b: [] })
    const worker = await workByHand(database, ['step'])
    const [claiming, cancelling] = [await database.connect(), await database.connect()]
    await claiming.query('begin')
    const [claimed] = await worker.claim(1, claiming)
    if (!claimed) throw new Error('not claimed')
    const cancelled = cancel(group.id, cancelling)
    await waitsForLock(database, cancelling)
    await claiming.query('commit')
    expect(await cancelled).toBe('cancelling')
    expect(await worker.settle([settling(claimed)])).toEqual([])
    expect(await statesOf(database, group)).toEqual({ a: 'cancelled', b: 'cancelled' })
  })

  it('[S13] two at once: the second waits, and both are right', async () => {
    const { group, begin, settle } = await running({ a: [], b: ['a'] })
    const [one, two] = [await begin(), await begin()]
    expect(await cancel(group.id, one)).toBe('cancelling')
    const second = cancel(group.id, two)
    await waitsForLock(database, two)
    await one.query('commit')
    expect(await second).toBe('cancelling')
    await two.query('commit')
    await settle(['a'])
    expect(await cancel(group.id)).toBe('cancelled')
    expect(await endOf(group.id)).toMatchObject({ end_state: 'cancelled', cancelled: 2 })
  })

  it('[S13] whose jobs have all ended, before that was written: it has finished', async () => {
    const { group, settle } = await running({ a: [] })
    await settle(['a'])
    expect(await cancel(group.id)).toBe('finished')
    expect(await cancel(group.id)).toBe('finished')
    expect(await endOf(group.id)).toMatchObject({ end_state: 'succeeded' })
  })

  it.each(['repeatable read', 'serializable'])(
    '[S13] says that a %s transaction cannot, and what to do',
    async isolation => {
      const { group, producer, jobs } = await running({ a: [], b: ['a'] })
      const tx = await database.connect()
      for (const call of [() => producer.cancelGroup(group, { tx }), () => producer.cancel(jobs.b, { tx })]) {
        await tx.query(`begin isolation level ${isolation}`)
        await expect(call()).rejects.toMatchObject({
          message: expect.stringContaining(isolation),
          hint: 'Do it in a READ COMMITTED transaction, or outside of any.',
        })
        await tx.query('rollback')
      }
    },
  )
})

describe('a cancelled job', () => {
  it('[S13] that waits is not counted, and its parent ends without it', async () => {
    const { jobs, producer, settle, states } = await running({ a: [], b: ['a'], c: ['b'], d: [['b', 'run']] })
    expect(await producer.cancel(jobs.b)).toBe('cancelled')
    expect(await states()).toEqual({ a: 'running', b: 'cancelled', c: 'dependency_failed', d: 'ready' })
    expect(await producer.cancel(jobs.b)).toBe('cancelled')
    expect(await settle(['a'])).toEqual([])
  })

  it.each([
    ['settle first', true],
    ['cancel first', false],
  ])('[S13] while its parent ends, %s', async (_, isSettledFirst) => {
    const { jobs, producer, settle, states, begin } = await running({ a: [], b: ['a'], c: ['b'] })
    const [one, two] = [await begin(), await begin()]
    if (isSettledFirst) {
      await settle(['a'], one)
      const cancelled = producer.cancel(jobs.b, { tx: two })
      await waitsForLock(database, two)
      await one.query('commit')
      expect(await cancelled).toBe('cancelled')
    } else {
      expect(await producer.cancel(jobs.b, { tx: two })).toBe('cancelled')
      expect(await settle(['a'], one)).toEqual([{ id: jobs.a.id, answer: 'busy' }])
      await one.query('commit')
    }
    await two.query('commit')
    expect(await settle(['a'])).toEqual([])
    expect(await states()).toEqual({ a: 'succeeded', b: 'cancelled', c: 'dependency_failed' })
  })

  it('[S13] rolled back leaves everything as it was', async () => {
    const { jobs, producer, states, begin, group } = await running({ a: [], b: ['a'], c: ['b'] })
    const before = await states()
    const tx = await begin()
    await producer.cancel(jobs.b, { tx })
    await producer.cancelGroup(group, { tx })
    await tx.query('rollback')
    expect(await states()).toEqual(before)
    expect(await endOf(group.id)).toMatchObject({ end_state: null })
  })
})

describe('a cancel that dooms an older job, which another has locked and waits for the cancelled one', () => {
  const PAUSED: Weakness = { name: 'cancel', point: 'jobs-ended', insertion: pauseAt(BARRIER) }

  /** The cancel holds `young` and is about to lock `old`; the other locks `old` and waits for `young`. */
  const race = async (weaknesses: Weakness[], other: (run: Run, client: TestClient) => Promise<unknown>) => {
    const run = await running({ old: ['top', 'young'], top: [], young: ['top'] })
    expect(run.jobs.old.id < run.jobs.young.id).toBe(true)
    const [cancelling, client, blocker] = [await run.begin(), await run.begin(), await database.connect()]
    await blocker.query('select pg_advisory_lock($1)', [BARRIER])
    const answers = await weakened(database, [PAUSED, ...weaknesses], async () => {
      const ended = async (tx: TestClient, call: Promise<unknown>) => {
        const answer = await call.catch((error: { code: string }) => error.code)
        await tx.query('commit')
        return answer
      }
      const cancelled = ended(cancelling, run.producer.cancel(run.jobs.young, { tx: cancelling }))
      await waitsForLock(database, cancelling)
      const done = ended(client, other(run, client))
      await waitsForLock(database, client)
      await blocker.query('select pg_advisory_unlock($1)', [BARRIER])
      return Promise.all([cancelled, done])
    })
    return { run, answers }
  }
  type Run = Awaited<ReturnType<typeof running<'old' | 'top' | 'young'>>>

  const complete = async ({ worker, claimOf }: Run, client: TestClient) => {
    const { id, lease_token } = claimOf('top')
    await client.query("select set_config('longshore_run.lease', $1, true)", [lease_token])
    const { rows } = await client.query('select longshore.complete($1, $2, $3, null) as answer', [
      worker.id,
      id,
      lease_token,
    ])
    return rows[0].answer
  }

  it('[S13] [X4] a completion transaction lets go of it in time, and both are done', async () => {
    const { run, answers } = await race([], complete)
    expect(answers).toEqual(['cancelled', `completed ${run.group.id}`])
    expect(await run.states()).toEqual({ top: 'succeeded', young: 'cancelled', old: 'dependency_failed' })
  })

  it('[S13] (red) one that does not let go is a deadlock', async () => {
    const holding = { name: 'pass_on_patiently', setting: 'lock_timeout', value: '20s' }
    const { answers } = await race([holding], complete)
    expect(answers).toContain('40P01')
  })

  it('[S13] a cancel of the whole group lets go of it in time, and both are done', async () => {
    const { run, answers } = await race([], ({ producer, group }, tx) => producer.cancelGroup(group, { tx }))
    expect(answers).toEqual(['cancelled', 'cancelling'])
    expect(await run.settle(['top'])).toEqual([])
    expect(await run.states()).toEqual({ top: 'cancelled', young: 'cancelled', old: 'dependency_failed' })
  })
})

describe('events that are told twice', () => {
  const GRAPH = {
    good: [],
    bad: [],
    lost: [],
    cancelled: [],
    both: ['good', ['bad', 'run']],
    doomed: ['bad'],
    below: ['doomed', 'good'],
    stopped: [['lost', 'cancel']],
    report: [
      ['below', 'run'],
      ['stopped', 'run'],
      ['cancelled', 'run'],
    ],
  } as const

  /** Every event of a group's life, each of them so many times. */
  const live = async (times: number) => {
    const run = await running<keyof typeof GRAPH>(GRAPH)
    const { worker, group, jobs, producer } = run
    const again = async (event: () => Promise<unknown>) => {
      for (let time = 0; time < times; time++) await event()
    }
    await again(() => run.settle(['good']))
    await again(() => run.fail(['bad']))
    await again(() => producer.cancel(jobs.cancelled))
    await again(() => run.settle(['cancelled']))
    await database.rows(
      "update longshore.workers set expires_at = now() - interval '1 second' where id = $1",
      [worker.id],
    )
    await again(() => database.rows('select longshore.rescue(3600000, 1000)'))
    const next = await workByHand(database, ['step'])
    for (let claims = await next.claim(10); claims.length > 0; claims = await next.claim(10))
      await again(() => next.settle(claims.map(settling)))
    await again(() => close(group.id))
    await again(() => producer.cancelGroup(group))
    return { states: await run.states(), end: await endOf(group.id) }
  }

  it('[S1] change nothing the second time', async () => {
    const once = await live(1)
    expect(once.states).toEqual({
      good: 'succeeded',
      bad: 'failed',
      lost: 'failed',
      cancelled: 'cancelled',
      both: 'succeeded',
      doomed: 'dependency_failed',
      below: 'dependency_failed',
      stopped: 'cancelled',
      report: 'succeeded',
    })
    expect(once.end).toMatchObject({ end_state: 'failed', succeeded: 3, failed: 2, cancelled: 2 })
    expect(await live(2)).toEqual(once)
  })
})
