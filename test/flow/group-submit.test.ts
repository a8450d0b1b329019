import { afterEach, describe, expect, it } from 'vitest'
import { defineTask, newJobId, type Producer } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { type StoreProxy, startProxy } from '../support/proxy.ts'
import { statesOf, submitGraph } from '../support/submit-graph.ts'

const database = useDatabase()
let proxy: StoreProxy | undefined
afterEach(async () => {
  await proxy?.close()
  proxy = undefined
})
const deployment = useDeployment(database)
const step = defineTask<string, string>({ name: 'step', retry: { maxAttempts: 1 } })
const wide = defineTask<{ n: number; text?: string }>({ name: 'wide' })

const counts = async () =>
  (
    await database.rows<{ jobs: number; edges: number; groups: number }>(
      `select (select count(*)::int from longshore.jobs) as jobs, (select count(*)::int from longshore.edges) as edges,
         (select count(*)::int from longshore.groups) as groups`,
    )
  )[0]
const NOTHING = { jobs: 0, edges: 0, groups: 0 }

describe('what is refused before anything is inserted', () => {
  it('[S2] circles, with the path', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const group = producer.group()
    const load = group.add(step, 'a', { name: 'load' })
    const check = group.add(step, 'b', { after: load })
    load.after(check)
    await expect(group.submit()).rejects.toMatchObject({
      code: 'GROUP_INVALID',
      message: 'these jobs would wait for each other for ever: load runs after step (job 2) runs after load',
    })
    await expect(group.submit()).rejects.toMatchObject({ code: 'GROUP_INVALID' })
    expect(await counts()).toEqual(NOTHING)
  })

  it('[S2] an empty group, an unknown parent, and one of another group', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await expect(producer.group().submit()).rejects.toMatchObject({
      code: 'GROUP_INVALID',
      message: 'the group is empty: add jobs to it',
    })
    const other = producer.group()
    const foreign = other.add(step, 'foreign')
    for (const parent of [newJobId(), foreign]) {
      const group = producer.group()
      group.add(step, 'a', { after: parent })
      await expect(group.submit()).rejects.toMatchObject({
        code: 'GROUP_INVALID',
        message: expect.stringContaining('which is not in this group: add it first, or leave it out'),
      })
    }
    expect(await counts()).toEqual(NOTHING)
  })

  it('[S2] options that are misspelt or make no sense, with what is possible', () => {
    const producer = deployment.producer({ tasks: [step] })
    const group = producer.group()
    const first = group.add(step, 'a')
    const refusals: [() => unknown, string, string][] = [
      [
        () => producer.group({ nmae: 'x' } as object),
        'GROUP_INVALID',
        'unknown option "nmae"; options are name, id',
      ],
      [() => producer.group({ id: 'mine' }), 'GROUP_INVALID', 'a group id is a UUID; got "mine"'],
      [() => producer.addToGroup('mine'), 'GROUP_INVALID', 'a group id is a UUID; got "mine"'],
      [() => producer.group({ name: '' }), 'GROUP_INVALID', 'name must be'],
      [() => group.add({} as never, 'a' as never), 'TASK_INVALID', 'defineTask'],
      [() => group.add(step, 'b', { aftr: first } as object), 'GROUP_INVALID', 'unknown option "aftr"'],
      [
        () => group.add(step, 'b', { id: newJobId() } as object),
        'GROUP_INVALID',
        'give them to group({ id }) and submit({ tx })',
      ],
      [() => group.add(step, 'b', { priority: -1 }), 'JOB_INVALID', 'priority must be'],
      [() => group.add(step, 'b', { name: '' }), 'GROUP_INVALID', 'name must be'],
      [() => group.add(step, 'b', { workflow: 1n as never }), 'JOB_INVALID', 'workflow must be a text'],
      [() => group.add(step, 'b', { name: 'x'.repeat(9999) }), 'GROUP_INVALID', `got "${'x'.repeat(199)}…"`],
      [
        () => group.add(step, 'b', { after: 'nobody' }),
        'GROUP_INVALID',
        'step (job 2): after takes a job of this group, its id, or { job, onFailure }; got "nobody"',
      ],
      [() => group.add(step, 'b', { after: null as never }), 'GROUP_INVALID', 'onFailure }; got null'],
      [() => group.add(step, 'b', { after: 5n as never }), 'GROUP_INVALID', 'onFailure }; got 5'],
      [
        () => group.add(step, 'b', { after: { job: undefined as never, onFailure: 'run' } }),
        'GROUP_INVALID',
        'onFailure }; got undefined',
      ],
      [
        () => group.add(step, 'b', { after: Promise.resolve() as never }),
        'GROUP_INVALID',
        'got a promise: wait for it first',
      ],
      [() => first.after([first] as never), 'GROUP_INVALID', 'got a list: give them one by one'],
      [() => first.after({} as never), 'GROUP_INVALID', 'got an object without an id'],
      [
        () => group.add(step, 'b', { after: { job: first, onFailure: 'ignore' as never } }),
        'GROUP_INVALID',
        'onFailure must be one of fail, run, cancel; got ignore',
      ],
      [
        () => group.add(step, 'b', { after: { job: first, onFail: 'run' } as never }),
        'GROUP_INVALID',
        'unknown option "onFail"; options are job, onFailure',
      ],
    ]
    for (const [call, code, message] of refusals)
      expect(call, message).toThrow(
        expect.objectContaining({ code, message: expect.stringContaining(message) }),
      )
  })

  it('a transaction that is none: nothing may slip past the one that was meant', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const tx = null as never
    const group = producer.group()
    group.add(step, 'a')
    const calls = [
      () => group.submit({ tx }),
      () => producer.enqueue(step, 'a', { tx }),
      () => producer.enqueueMany(step, ['a'], { tx }),
      () => producer.cancel(newJobId(), { tx }),
      () => producer.cancelGroup(newJobId(), { tx }),
      () => producer.resumeWorkflow('a', { tx }),
    ]
    for (const call of calls)
      await expect(call()).rejects.toMatchObject({
        code: 'TRANSACTION_INVALID',
        message: expect.stringContaining('`tx` must be the one client'),
      })
    expect(await counts()).toEqual(NOTHING)
  })

  it('a watcher that is no function', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await expect(producer.watchGroups({} as never)).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining('watchGroups takes a function'),
    })
  })

  it('a payload that cannot be stored', async () => {
    const producer = deployment.producer({ tasks: [step], maxPayloadBytes: 10 })
    const group = producer.group()
    group.add(step, 'short')
    group.add(step, 'much too long')
    await expect(group.submit()).rejects.toMatchObject({ code: 'PAYLOAD_REFUSED' })
    expect(await counts()).toEqual(NOTHING)
  })

  it('a group that has been submitted takes no more, and says where they go', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const group = producer.group()
    const first = group.add(step, 'a')
    await group.submit()
    const message =
      'this group has been submitted: add further jobs with addToGroup(group), or build it anew if its transaction was rolled back'
    expect(() => group.add(step, 'b')).toThrow(message)
    expect(() => first.after(first)).toThrow(message)
    await expect(group.submit()).rejects.toThrow(message)
    await expect(producer.addToGroup(group).submit({ txx: 1 } as object)).rejects.toThrow(
      'unknown option "txx"',
    )
  })
})

describe('a submission inside a transaction', () => {
  it.each(['read committed', 'repeatable read', 'serializable'])(
    '[X1] is part of it: %s',
    async isolation => {
      const producer = deployment.producer({ tasks: [step] })
      const tx = await database.connect()
      for (const end of ['rollback', 'commit']) {
        const group = producer.group()
        const a = group.add(step, 'a')
        group.add(step, 'b', { after: a })
        await tx.query(`begin isolation level ${isolation}`)
        await tx.query('select 1')
        expect(await group.submit({ tx })).toEqual({ id: group.id, isNew: true })
        const more = producer.addToGroup(group)
        more.add(step, 'c', { after: a })
        await more.submit({ tx })
        expect(await producer.getGroup(group)).toBeUndefined()
        await tx.query(end)
        if (end === 'rollback') expect(await counts()).toEqual(NOTHING)
        else expect(await statesOf(database, group)).toEqual({ a: 'ready', b: 'waiting', c: 'waiting' })
      }
    },
  )

  it('[X1] a pool is refused', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const group = producer.group()
    group.add(step, 'a')
    const pool = { query: async () => ({ rows: [] }), totalCount: 1 }
    await expect(group.submit({ tx: pool as never })).rejects.toThrow('a pool is not')
  })
})

describe('a group with an id of its own', () => {
  const id = newJobId()

  it('[S1] is submitted once: later submissions change nothing, also when it has ended', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const worker = await workByHand(database, ['step'])
    const submit = () => {
      const group = producer.group({ id: id.toUpperCase(), name: 'nightly' })
      const a = group.add(step, 'a')
      group.add(step, 'b', { after: a })
      return group.submit()
    }
    expect(await submit()).toEqual({ id, isNew: true })
    expect(await submit()).toEqual({ id, isNew: false })
    expect(await counts()).toEqual({ jobs: 2, edges: 1, groups: 1 })
    for (let n = 0; n < 2; n++) await worker.settle((await worker.claim(1)).map(settling))
    await database.rows('select longshore.close_groups(array[$1]::uuid[])', [id])
    expect(await submit()).toEqual({ id, isNew: false })
    expect(await producer.getGroup(id)).toMatchObject({
      state: 'succeeded',
      name: 'nightly',
      counts: { succeeded: 2 },
    })
    expect(await counts()).toMatchObject({ jobs: 0 })
  })

  it.each(['commit', 'rollback'])(
    '[S1] twice at once: the second waits for the %s of the first',
    async end => {
      const producer = deployment.producer({ tasks: [step] })
      const [one, two] = [await database.connect(), await database.connect()]
      for (const tx of [one, two]) await tx.query('begin')
      const submit = (tx: typeof one) => {
        const group = producer.group({ id })
        group.add(step, 'a')
        return group.submit({ tx })
      }
      await submit(one)
      const second = submit(two)
      await waitsForLock(database, two)
      await one.query(end)
      expect(await second).toEqual({ id, isNew: end === 'rollback' })
      await two.query('commit')
      expect(await counts()).toMatchObject({ jobs: 1, groups: 1 })
    },
  )
})

describe('a lost reply', () => {
  const lossy = async () => {
    proxy = await startProxy(database.urlOf('producer'))
    const producer = deployment.producer({ tasks: [step, wide], postgres: proxy.url })
    const { group } = await submitGraph(producer, step, { warm: [] })
    return { proxy, producer, group }
  }

  it('[S10] to a submission: the retry does not double it, though it has run meanwhile', async () => {
    const { proxy, producer } = await lossy()
    const group = producer.group()
    const a = group.add(step, 'a')
    group.add(step, 'b', { after: a })
    const lost = proxy.loseReplyTo('add_to_group')
    const submitted = group.submit()
    await lost
    expect(await submitted).toEqual({ id: group.id, isNew: true })
    expect(await counts()).toEqual({ jobs: 3, edges: 1, groups: 2 })
  })

  it('[S10] to the commit of a submission in chunks, and of jobs that are added', async () => {
    const { proxy, producer, group } = await lossy()
    const large = producer.group()
    for (let n = 0; n < 1500; n++) large.add(wide, { n })
    const lost = proxy.loseReplyTo('commit', 'add_to_group')
    const submitted = large.submit()
    await lost
    expect(await submitted).toEqual({ id: large.id, isNew: true })
    expect(await counts()).toEqual({ jobs: 1501, edges: 0, groups: 2 })
    const more = producer.addToGroup(group)
    more.add(step, 'more')
    const lostAgain = proxy.loseReplyTo('add_to_group')
    const added = more.submit()
    await lostAgain
    await added
    expect(await statesOf(database, group)).toEqual({ warm: 'ready', more: 'ready' })
  })

  it('[S10] to one that somebody else was faster with: it says so', async () => {
    const { proxy, producer, group } = await lossy()
    const again = producer.group({ id: group.id })
    again.add(step, 'other')
    const lost = proxy.loseRequest('add_to_group')
    const submitted = again.submit()
    await lost
    expect(await submitted).toEqual({ id: group.id, isNew: false })
    expect(await statesOf(database, group)).toEqual({ warm: 'ready' })
  })
})

describe('groups submitted at the same time', () => {
  const diamonds = (producer: Producer, groups: number) =>
    Array.from({ length: groups }, () => {
      const group = producer.group({ name: 'diamond' })
      const top = group.add(step, 'top')
      group.add(step, 'bottom', {
        after: [group.add(step, 'left', { after: top }), group.add(step, 'right', { after: top })],
      })
      return group
    })

  it('[S2] travel together, each with jobs and edges of its own', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const groups = diamonds(producer, 120)
    const answers = await Promise.all(groups.map(group => group.submit()))
    expect(answers).toEqual(groups.map(({ id }) => ({ id, isNew: true })))
    expect(await counts()).toEqual({ jobs: 480, edges: 480, groups: 120 })
    const commits = await database.rows('select distinct xmin::text from longshore.groups')
    expect(commits.length).toBeLessThan(10)
    expect(
      await database.rows(
        `select from longshore.edges e join longshore.jobs p on p.id = e.parent join longshore.jobs c on c.id = e.child
         where p.group_id is distinct from c.group_id`,
      ),
    ).toEqual([])
    for (const group of groups.slice(0, 3)) {
      expect(await statesOf(database, group)).toEqual({
        top: 'ready',
        left: 'waiting',
        right: 'waiting',
        bottom: 'waiting',
      })
    }
  })

  it('[S2] are taken apart when one of them is refused: the others are there', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const [first, last] = diamonds(producer, 2)
    const bad = producer.group()
    bad.add(step, 'bad')
    await database.rows(`alter table longshore.jobs add constraint none_is_bad check (payload <> '"bad"')`)
    try {
      const answers = await Promise.allSettled([first, bad, last].map(group => group?.submit()))
      expect(answers.map(answer => answer.status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
      expect(await counts()).toEqual({ jobs: 8, edges: 8, groups: 2 })
    } finally {
      await database.rows('alter table longshore.jobs drop constraint none_is_bad')
    }
  })

  it('[S10] are not doubled when the reply is lost', async () => {
    proxy = await startProxy(database.urlOf('producer'))
    const producer = deployment.producer({ tasks: [step], postgres: proxy.url })
    await submitGraph(producer, step, { warm: [] })
    const groups = diamonds(producer, 5)
    const lost = proxy.loseReplyTo('add_to_groups')
    const submitted = Promise.all(groups.map(group => group.submit()))
    await lost
    expect(await submitted).toEqual(groups.map(({ id }) => ({ id, isNew: true })))
    expect(await counts()).toEqual({ jobs: 21, edges: 20, groups: 6 })
  })
})

describe('a large submission', () => {
  it('[S2] travels in chunks, with edges across them', async () => {
    const producer = deployment.producer({ tasks: [wide] })
    const group = producer.group()
    const jobs = Array.from({ length: 2500 }, (_, n) => group.add(wide, { n }))
    // Against the order in which they were added, and from one end to the other.
    const last = jobs.at(-1)
    for (let n = 0; n < 2498; n += 2) jobs[n]?.after(...[jobs[n + 1], last].filter(job => job !== undefined))
    await group.submit()
    expect(await counts()).toMatchObject({ jobs: 2500, groups: 1 })
    expect(await producer.getGroup(group)).toMatchObject({ counts: { ready: 1251, waiting: 1249 } })
  })

  it('[S2] with payloads of many megabytes', async () => {
    const producer = deployment.producer({ tasks: [wide], maxPayloadBytes: 4 * 1024 * 1024 })
    const group = producer.group()
    const text = 'x'.repeat(3 * 1024 * 1024)
    const first = group.add(wide, { n: 0, text })
    for (let n = 1; n < 8; n++) group.add(wide, { n, text }, { after: first })
    await group.submit()
    expect(await producer.getGroup(group)).toMatchObject({ counts: { ready: 1, waiting: 7 } })
  })

  it('[S2] is inserted whole or not at all', async () => {
    const producer = deployment.producer({ tasks: [wide] })
    await database.rows("alter table longshore.jobs add constraint no_13 check (payload ->> 'n' <> '1300')")
    const group = producer.group()
    for (let n = 0; n < 1500; n++) group.add(wide, { n })
    await expect(group.submit()).rejects.toThrow('no_13')
    await database.rows('alter table longshore.jobs drop constraint no_13')
    expect(await counts()).toEqual(NOTHING)
    // What was wrong is mended: the same group can be submitted.
    expect(await group.submit()).toMatchObject({ isNew: true })
    expect(await counts()).toMatchObject({ jobs: 1500, groups: 1 })
  })
})

describe('jobs that are added to a live group', () => {
  const live = async () => {
    const producer = deployment.producer({ tasks: [step] })
    const worker = await workByHand(database, ['step'])
    const { group, jobs } = await submitGraph(producer, step, { good: [], bad: [], runs: [], next: ['runs'] })
    const claims = await worker.claim(10)
    const claimOf = (name: string) =>
      settling(claims.find(claim => claim.payload === name) as (typeof claims)[0])
    await worker.settle([claimOf('good')])
    await worker.settleOthers([{ ...claimOf('bad'), outcome: 'failed', error: { code: 'X', message: 'no' } }])
    return { producer, worker, group, jobs, settleRuns: () => worker.settle([claimOf('runs')]) }
  }

  it('[S3] [S4] run after what waits, runs or has succeeded; after what has failed by the policy', async () => {
    const { producer, group, jobs, settleRuns } = await live()
    const more = producer.addToGroup(group)
    more.add(step, 'free')
    more.add(step, 'after next', { after: jobs.next })
    more.add(step, 'after runs', { after: jobs.runs })
    more.add(step, 'after good', { after: jobs.good })
    more.add(step, 'after good and runs', { after: [jobs.good, jobs.runs] })
    const doomed = more.add(step, 'after bad', { after: jobs.bad })
    more.add(step, 'below', { after: doomed })
    more.add(step, 'below, runs', { after: { job: doomed, onFailure: 'run' } })
    more.add(step, 'runs after bad', { after: { job: jobs.bad, onFailure: 'run' } })
    more.add(step, 'cancelled after bad', { after: { job: jobs.bad, onFailure: 'cancel' } })
    more.add(step, 'both', {
      after: [
        { job: jobs.bad, onFailure: 'cancel' },
        { job: doomed, onFailure: 'fail' },
      ],
    })
    more.add(step, 'bad and runs', { after: [jobs.bad, jobs.runs] })
    expect(await more.submit()).toEqual({ id: group.id, isNew: true })
    expect(await statesOf(database, group)).toEqual({
      good: 'succeeded',
      bad: 'failed',
      runs: 'running',
      next: 'waiting',
      free: 'ready',
      'after next': 'waiting',
      'after runs': 'waiting',
      'after good': 'ready',
      'after good and runs': 'waiting',
      'after bad': 'dependency_failed',
      below: 'dependency_failed',
      'below, runs': 'ready',
      'runs after bad': 'ready',
      'cancelled after bad': 'cancelled',
      both: 'dependency_failed',
      'bad and runs': 'dependency_failed',
    })
    expect(await producer.get(doomed)).toMatchObject({
      error: {
        code: 'DEPENDENCY_FAILED',
        message: `job ${jobs.bad.id}, which it was to run after, has not succeeded`,
      },
    })
    expect(await settleRuns()).toEqual([])
    expect(await statesOf(database, group)).toMatchObject({
      next: 'ready',
      'after runs': 'ready',
      'after good and runs': 'ready',
    })
  })

  it('[S4] a doomed job of one chunk dooms those of the next', async () => {
    const { producer, group, jobs } = await live()
    const more = producer.addToGroup(group)
    const doomed = more.add(step, 'doomed', { after: jobs.bad })
    for (let n = 0; n < 1000; n++) more.add(step, `free ${n}`)
    more.add(step, 'last', { after: doomed })
    more.add(step, 'anyway', { after: { job: doomed, onFailure: 'run' } })
    await more.submit()
    expect(await statesOf(database, group)).toMatchObject({
      doomed: 'dependency_failed',
      last: 'dependency_failed',
      anyway: 'ready',
    })
  })

  it('[S5] [S13] are refused when it has ended, was cancelled, or never was, and told what to do', async () => {
    const { producer, group, settleRuns } = await live()
    const add = (to: string | { id: string }) => {
      const more = producer.addToGroup(to)
      more.add(step, 'late')
      return more.submit()
    }
    const unknown = newJobId()
    await expect(add(unknown)).rejects.toMatchObject({
      code: 'GROUP_NOT_FOUND',
      message: `there is no group ${unknown}. Was it submitted by this service, and has its transaction been committed?`,
    })
    expect(await producer.cancelGroup(group)).toBe('cancelling')
    await expect(add(group)).rejects.toMatchObject({
      code: 'GROUP_ENDED',
      message: `group ${group.id} has been cancelled: no job can be added to it. Submit a new group`,
    })
    await settleRuns()
    await producer.cancelGroup(group)
    await expect(add(group)).rejects.toMatchObject({
      code: 'GROUP_ENDED',
      message: `group ${group.id} has ended as cancelled: no job can be added to it. Submit a new group`,
    })
  })

  it('[S2] are refused when they run after what is not in their group', async () => {
    const { producer, group, jobs } = await live()
    const other = await submitGraph(producer, step, { elsewhere: [] })
    const alone = await producer.enqueue(step, 'alone')
    const before = await counts()
    const nobody = newJobId()
    for (const [parent, problem] of [
      [other.jobs.elsewhere.id, `does not belong to group ${group.id}`],
      [alone.id, `does not belong to group ${group.id}`],
      [nobody, 'is not known (or its history has been dropped)'],
    ] as const) {
      const more = producer.addToGroup(group)
      more.add(step, 'late', { after: [jobs.good, jobs.runs, parent] })
      await expect(more.submit()).rejects.toMatchObject({
        code: 'GROUP_INVALID',
        message: `job ${parent}, which another is to run after, ${problem}. A job can only run after jobs of its own group`,
      })
    }
    expect(await counts()).toEqual(before)
  })
})
