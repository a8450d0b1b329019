import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { defineTask, type GroupEvent, NonRetryableError, newJobId } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually, gate } from '../support/signals.ts'
import { type Graph, statesOf, submitGraph } from '../support/submit-graph.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<string, string>({ name: 'step', retry: { maxAttempts: 1 } })

/** Fails what is called bad, and holds what is called held until its signal fires or the gate is opened. */
function handled() {
  const began = counter()
  const mayEnd = gate()
  const told: string[] = []
  const handler = step.handle(async (job, ctx) => {
    if (job.payload.startsWith('bad')) throw new Error('no')
    if (job.payload.startsWith('fatal')) throw new NonRetryableError('never')
    if (job.payload.startsWith('held')) {
      began.add()
      const aborted = new Promise(resolve => ctx.signal.addEventListener('abort', resolve))
      await Promise.race([mayEnd.opened, aborted])
      if (ctx.signal.aborted) told.push(job.payload)
    }
    return job.payload
  })
  return { handler, began, mayEnd, told }
}

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

describe('groups', () => {
  it('[S2] makes what depends on nothing ready, and the rest waiting', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const group = producer.group({ name: 'chain' })
    const first = group.add(step, 'a')
    const second = group.add(step, 'b', { after: first })
    expect(await group.submit()).toEqual({ id: group.id, isNew: true })
    expect(await producer.get(first)).toMatchObject({ state: 'ready' })
    expect(await producer.get(second)).toMatchObject({ state: 'waiting' })
    expect(await producer.getGroup(group)).toMatchObject({
      state: 'queued',
      counts: { ready: 1, waiting: 1 },
    })
  })

  it('[S3] a diamond runs in order', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const ran: string[] = []
    await deployment.worker({
      handlers: [
        step.handle(async (job, ctx) => {
          ran.push(job.payload)
          return `${job.payload}:${(await ctx.parents.of(step)).map(parent => parent.result).join('+')}`
        }),
      ],
    })
    const group = producer.group({ name: 'diamond' })
    const top = group.add(step, 'top')
    const left = group.add(step, 'left', { after: top })
    const right = group.add(step, 'right', { after: top })
    const bottom = group.add(step, 'bottom', { after: [left, right] })
    await group.submit()
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'succeeded', counts: { succeeded: 4 } })
    expect(ran[0]).toBe('top')
    expect(ran[3]).toBe('bottom')
    expect(await producer.get(bottom)).toMatchObject({ result: 'bottom:left:top:+right:top:' })
  })

  it('[S4] failure spreads by policy', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await deployment.worker({
      handlers: [
        step.handle(job => {
          if (job.payload === 'bad') throw new Error('no')
          return job.payload
        }),
      ],
    })
    const group = producer.group()
    const bad = group.add(step, 'bad')
    const failed = group.add(step, 'b', { after: bad })
    const deeper = group.add(step, 'c', { after: failed })
    const anyway = group.add(step, 'd', { after: { job: deeper, onFailure: 'run' } })
    const cancelled = group.add(step, 'e', { after: { job: bad, onFailure: 'cancel' } })
    const other = group.add(step, 'f')
    await group.submit()
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'failed' })
    const states = await Promise.all(
      [bad, failed, deeper, anyway, cancelled, other].map(async job => (await producer.get(job))?.state),
    )
    expect(states).toEqual([
      'failed',
      'dependency_failed',
      'dependency_failed',
      'succeeded',
      'cancelled',
      'succeeded',
    ])
  })
})

describe('graphs', () => {
  const sum = defineTask<number, number>({ name: 'sum' })

  it('[S3] 1 → 1,050 → 1: the last one reads the results of all', async () => {
    const producer = deployment.producer({ tasks: [sum] })
    const seen: number[] = []
    await deployment.worker({
      handlers: [
        sum.handle(async (job, ctx) => {
          if (job.payload >= 0) return job.payload
          for await (const parent of ctx.parents)
            if (typeof parent.result === 'number') seen.push(parent.result)
          return (await ctx.parents.of(sum)).reduce(
            (total, parent) => total + (parent.state === 'succeeded' ? parent.result : 0),
            0,
          )
        }),
      ],
    })
    const group = producer.group()
    const top = group.add(sum, 0)
    const middle = numbers(1050).map(n => group.add(sum, n, { after: top }))
    const bottom = group.add(sum, -1, { after: middle })
    await group.submit()
    expect(await producer.waitForGroup(group)).toMatchObject({
      state: 'succeeded',
      counts: { succeeded: 1052 },
    })
    expect(await producer.get(bottom)).toMatchObject({ result: (1049 * 1050) / 2 })
    expect(seen.sort((a, b) => a - b)).toEqual(numbers(1050))
  })

  it('[S4] 1 → 1,000 → 1 with a failure on top ends all of them at once', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await deployment.worker({ handlers: [handled().handler] })
    const group = producer.group()
    const top = group.add(step, 'bad')
    const middle = numbers(1000).map(n => group.add(step, `${n}`, { after: top }))
    group.add(step, 'bottom', { after: middle })
    group.add(step, 'report', { after: middle.map(job => ({ job, onFailure: 'run' as const })) })
    await group.submit()
    expect(await producer.waitForGroup(group)).toMatchObject({
      state: 'failed',
      counts: { failed: 1, dependency_failed: 1001, succeeded: 1 },
    })
  })

  /** Jobs in any shape, some of which fail, with any policies. */
  const graphs = fc
    .array(
      fc.record({
        isBad: fc.integer({ min: 0, max: 7 }).map(n => n === 0),
        parents: fc.array(fc.tuple(fc.nat(), fc.constantFrom('fail', 'run', 'cancel')), { maxLength: 3 }),
      }),
      { minLength: 20, maxLength: 60 },
    )
    .map(rows => {
      const names = rows.map((row, n) => `${row.isBad ? 'bad' : 'good'}${n}`)
      return Object.fromEntries(
        rows.map((row, n) => [
          names[n] as string,
          n === 0 ? [] : row.parents.map(([parent, policy]) => [names[parent % n], policy] as const),
        ]),
      ) as Graph<string>
    })

  /** The states that each job may end in. */
  function expected(graph: Graph<string>): Record<string, string[]> {
    const ends: Record<string, string[]> = {}
    for (const [name, parents] of Object.entries(graph)) {
      const byParent = new Map(parents as [string, string][]) // the last policy counts
      const dooms = [...byParent].filter(
        ([parent, policy]) => policy !== 'run' && ends[parent]?.[0] !== 'succeeded',
      )
      const states = [
        ...new Set(dooms.map(([, policy]) => (policy === 'cancel' ? 'cancelled' : 'dependency_failed'))),
      ]
      // By whichever parent ended first, if they did not end at once.
      ends[name] = states.length > 0 ? states : [name.startsWith('bad') ? 'failed' : 'succeeded']
    }
    return ends
  }

  it('[S3] [S4] [S5] whatever the graph, every job ends as its parents and policies say', async () => {
    const producer = deployment.producer({ tasks: [step] })
    for (let n = 0; n < 2; n++)
      await deployment.worker({ handlers: [handled().handler], maxConcurrentTasks: 5 })
    await Promise.all(
      fc.sample(graphs, 8).map(async graph => {
        const { group } = await submitGraph<string>(producer, step, graph)
        const { state } = await producer.waitForGroup(group)
        const states = await statesOf(database, group)
        const wanted = expected(graph)
        for (const [name, end] of Object.entries(states))
          expect(wanted[name], JSON.stringify(graph)).toContain(end)
        const ends = Object.values(states)
        expect(ends).toHaveLength(Object.keys(graph).length)
        expect(state).toBe(
          ends.some(end => end === 'failed' || end === 'dependency_failed')
            ? 'failed'
            : ends.includes('cancelled')
              ? 'cancelled'
              : 'succeeded',
        )
      }),
    )
  })
})

describe('failure', () => {
  it('[S4] spreads however it came about: a failed run, tries used up, no retry, a cancel', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { handler, began } = handled()
    await deployment.worker({ handlers: [handler] })
    const group = producer.group()
    const heads = {
      bad: group.add(step, 'bad'),
      'bad twice': group.add(step, 'bad twice', { maxAttempts: 2 }),
      fatal: group.add(step, 'fatal', { maxAttempts: 5 }),
      held: group.add(step, 'held'),
      later: group.add(step, 'later', { delay: '1h' }),
    }
    for (const [name, head] of Object.entries(heads))
      for (const onFailure of ['fail', 'run', 'cancel'] as const)
        group.add(step, `> ${name}: ${onFailure}`, { after: { job: head, onFailure } })
    const [left, right] = ['left', 'right'].map(name => group.add(step, name, { after: heads.later }))
    if (!left || !right) throw new Error('not added')
    const mixed = group.add(step, 'mixed', { after: [{ job: left, onFailure: 'cancel' }, right] })
    await group.submit()
    await began.reached(1)
    expect(await producer.cancel(heads.held)).toBe('cancelling')
    expect(await producer.cancel(heads.later)).toBe('cancelled')
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'failed' })
    const states = await statesOf(database, group)
    for (const [name, state] of [
      ['bad', 'failed'],
      ['bad twice', 'failed'],
      ['fatal', 'failed'],
      ['held', 'cancelled'],
      ['later', 'cancelled'],
    ]) {
      expect(states[String(name)]).toBe(state)
      expect(states[`> ${name}: fail`]).toBe('dependency_failed')
      expect(states[`> ${name}: run`]).toBe('succeeded')
      expect(states[`> ${name}: cancel`]).toBe('cancelled')
    }
    expect(await producer.get(heads['bad twice'])).toMatchObject({ attempts: 2 })
    expect(await producer.get(mixed)).toMatchObject({
      state: 'dependency_failed',
      error: {
        code: 'DEPENDENCY_FAILED',
        message: expect.stringMatching(/^job \S+, which it was to run after, has not succeeded$/),
      },
    })
  })

  it('[S4] of one side of a diamond ends the bottom, and the other side goes on', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await deployment.worker({ handlers: [handled().handler] })
    const { group } = await submitGraph(producer, step, {
      top: [],
      'bad left': ['top'],
      right: ['top'],
      below: ['right'],
      bottom: ['bad left', 'right'],
      last: ['bottom'],
      report: [['last', 'run'], 'below'],
    })
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'failed' })
    expect(await statesOf(database, group)).toEqual({
      top: 'succeeded',
      'bad left': 'failed',
      right: 'succeeded',
      below: 'succeeded',
      bottom: 'dependency_failed',
      last: 'dependency_failed',
      report: 'succeeded',
    })
  })

  it('[S4] [S7] of a poison job spreads when it is taken back, and the sweep closes the group', async () => {
    const poison = defineTask<string, string>({ name: 'poison', retry: { maxRescues: 0 } })
    const producer = deployment.producer({ tasks: [poison] })
    const { group } = await submitGraph(producer, poison, { a: [], b: ['a'], c: ['b'] })
    const dead = await workByHand(database, ['poison'])
    await dead.claim(1)
    await database.rows("update longshore.workers set expires_at = now() - interval '1 hour', lease_ms = 100")
    await deployment.worker({ handlers: [step.handle(() => '')] })
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'failed' })
    expect(await statesOf(database, group)).toEqual({
      a: 'failed',
      b: 'dependency_failed',
      c: 'dependency_failed',
    })
  })
})

describe('the handler of a job', () => {
  it('sees what it ran after, with results and errors; outside a group nothing', async () => {
    const count = defineTask<string, number>({ name: 'count' })
    const producer = deployment.producer({ tasks: [step, count] })
    const seen = gate<unknown>()
    const alone = gate<unknown>()
    await deployment.worker({
      handlers: [
        count.handle(job => job.payload.length),
        step.handle(async (job, ctx) => {
          if (job.payload === 'bad') throw new Error('no')
          if (job.payload === 'alone') alone.open([await ctx.parents.all(), await ctx.groupId()])
          if (job.payload === 'last') {
            const counted = await ctx.parents.of(count)
            const total: number = counted.reduce((all, parent) => all + (parent.result ?? 0), 0)
            seen.open([total, await ctx.parents.all(), await ctx.groupId()])
          }
          return job.payload
        }),
      ],
    })
    const group = producer.group()
    const parents = [
      group.add(count, 'four'),
      group.add(count, 'seven..'),
      group.add(step, 'bad'),
      group.add(step, 'plain'),
    ]
    group.add(step, 'last', { after: parents.map(job => ({ job, onFailure: 'run' as const })) })
    await group.submit()
    expect(await seen.opened).toEqual([
      11,
      [
        { id: parents[0]?.id, task: 'count', state: 'succeeded', result: 4, error: null },
        { id: parents[1]?.id, task: 'count', state: 'succeeded', result: 7, error: null },
        {
          id: parents[2]?.id,
          task: 'step',
          state: 'failed',
          result: null,
          error: expect.objectContaining({ message: 'no' }),
        },
        { id: parents[3]?.id, task: 'step', state: 'succeeded', result: 'plain', error: null },
      ],
      group.id,
    ])
    await producer.enqueue(step, 'alone')
    expect(await alone.opened).toEqual([[], null])
  })

  it('[S3] adds jobs to its own group that run after itself, also in the transaction that completes it', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const add = async (groupId: string | null, name: string, after: string, tx?: object) => {
      const more = producer.addToGroup(groupId as string)
      more.add(step, name, { after })
      await more.submit(tx ? { tx: tx as never } : {})
    }
    await deployment.worker({
      // It enqueues in its own transactions.
      postgres: database.urlOf('app'),
      handlers: [
        step.handle(async (job, ctx) => {
          const groupId = await ctx.groupId()
          if (job.payload === 'one') await add(groupId, 'two', job.id)
          if (job.payload === 'two')
            await ctx.complete(async tx => {
              await add(groupId, 'three', job.id, tx)
              return 'completed'
            })
          return (await ctx.parents.of(step)).map(parent => parent.result).join()
        }),
      ],
    })
    const { group } = await submitGraph(producer, step, { one: [] })
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'succeeded', counts: { succeeded: 3 } })
    const results = await database.rows<{ result: string }>(
      "select result #>> '{}' as result from longshore.finished_jobs order by id",
    )
    expect(results.map(row => row.result)).toEqual(['', 'completed', 'completed'])
  })

  it('[S9] is not held up by an open transaction that adds to a job beside it; that one settles after the commit', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { handler, began, mayEnd } = handled()
    await deployment.worker({ handlers: [handler] })
    const { group, jobs } = await submitGraph(producer, step, {
      'held 1': [],
      'held 2': [],
      'held 3': [],
      after: ['held 3'],
    })
    await began.reached(3)
    const tx = await database.connect()
    await tx.query('begin')
    const more = producer.addToGroup(group)
    const child = more.add(step, 'child', { after: jobs['held 2'] })
    await more.submit({ tx })
    mayEnd.open()
    for (const job of [jobs['held 1'], jobs['held 3'], jobs.after])
      expect(await producer.waitFor(job)).toMatchObject({ state: 'succeeded' })
    expect(await producer.get(jobs['held 2'])).toMatchObject({ state: 'running' })
    await tx.query('commit')
    expect(await producer.waitFor(jobs['held 2'])).toMatchObject({ state: 'succeeded', attempts: 1 })
    expect(await producer.waitFor(child)).toMatchObject({ state: 'succeeded' })
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'succeeded' })
  })
})

describe('dependents', () => {
  it('[S3] that are not due when they are released wait for their time', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await deployment.worker({ handlers: [handled().handler] })
    const group = producer.group()
    const first = group.add(step, 'first')
    const far = group.add(step, 'far', { after: first, runAt: new Date(Date.now() + 3_600_000) })
    const near = group.add(step, 'near', { after: first, delay: 400 })
    await group.submit()
    await producer.waitFor(first)
    expect(await producer.get(far)).toMatchObject({ state: 'scheduled' })
    expect(await producer.waitFor(near)).toMatchObject({ state: 'succeeded' })
    expect(await producer.getGroup(group)).toMatchObject({ state: 'dispatching', counts: { scheduled: 1 } })
    expect(await producer.change(far, { delay: 0 })).toBe('changed')
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'succeeded' })
  })

  it('[L1] [S3] under limits are found, and keep them', async () => {
    const one = defineTask<string, string>({ name: 'one', concurrency: 1 })
    const keyed = defineTask<string, string>({
      name: 'keyed',
      concurrency: 4,
      concurrencyPerKey: 1,
    })
    const producer = deployment.producer({ tasks: [step, one, keyed] })
    let inside = 0
    let most = 0
    const limited = async () => {
      most = Math.max(most, ++inside)
      await new Promise(resolve => setImmediate(resolve))
      inside--
      return ''
    }
    for (let n = 0; n < 2; n++)
      await deployment.worker({
        handlers: [step.handle(() => ''), one.handle(limited), keyed.handle(() => '')],
      })
    const group = producer.group()
    const first = group.add(step, 'first')
    for (const n of numbers(10)) group.add(one, `${n}`, { after: first })
    for (const n of numbers(15)) group.add(keyed, `${n}`, { after: first, concurrencyKey: `tenant ${n % 5}` })
    await group.submit()
    expect(await producer.waitForGroup(group)).toMatchObject({
      state: 'succeeded',
      counts: { succeeded: 26 },
    })
    expect(most).toBe(1)
  })
})

describe('cancelling a group', () => {
  it('[S13] before anything has started: nothing starts', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { group } = await submitGraph(producer, step, { a: [], b: ['a'], c: [['b', 'run']] })
    expect(await producer.getGroup(group)).toMatchObject({ state: 'queued' })
    const waiting = producer.waitForGroup(group)
    expect(await producer.cancelGroup(group)).toBe('cancelled')
    expect(await waiting).toMatchObject({ state: 'cancelled', counts: { cancelled: 3 } })
    expect(await producer.cancelGroup(group)).toBe('cancelled')
    expect(await producer.cancelGroup(newJobId())).toBe('unknown')
    const { handler } = handled()
    await deployment.worker({ handlers: [handler] })
    await producer.waitFor(await producer.enqueue(step, 'after'))
    expect(await deployment.runs()).toHaveLength(1)
  })

  it('[S13] while jobs run: their handlers are told, and nothing else starts', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { handler, began, told } = handled()
    for (let n = 0; n < 2; n++) await deployment.worker({ handlers: [handler], maxConcurrentTasks: 1 })
    const { group } = await submitGraph(producer, step, {
      'held 1': [],
      'held 2': [],
      ready: [],
      waiting: ['held 1'],
      report: [['held 1', 'run']],
    })
    await began.reached(2)
    expect(await producer.getGroup(group)).toMatchObject({ state: 'dispatching', counts: { running: 2 } })
    expect(await producer.cancelGroup(group)).toBe('cancelling')
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'cancelled', counts: { cancelled: 5 } })
    expect(told.sort()).toEqual(['held 1', 'held 2'])
    expect(await deployment.runs()).toHaveLength(2)
    expect(await producer.cancelGroup(group)).toBe('cancelled')
  })

  it('[S13] that has ended changes nothing', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await deployment.worker({ handlers: [handled().handler] })
    const { group } = await submitGraph(producer, step, { a: [], bad: [] })
    const ended = await producer.waitForGroup(group)
    expect(await producer.cancelGroup(group)).toBe('finished')
    expect(await producer.getGroup(group)).toEqual(ended)
  })

  it('[X1] [S13] is part of the transaction that it is asked in', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { handler, began, mayEnd, told } = handled()
    await deployment.worker({ handlers: [handler] })
    const { group } = await submitGraph(producer, step, { held: [], next: ['held'] })
    await began.reached(1)
    const tx = await database.connect()
    await tx.query('begin')
    expect(await producer.cancelGroup(group, { tx })).toBe('cancelling')
    await tx.query('rollback')
    mayEnd.open()
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'succeeded', counts: { succeeded: 2 } })
    expect(told).toEqual([])
  })
})

describe('the end of a group', () => {
  it('[S5] is told to who waits, before and after, and to who watches', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await deployment.worker({ handlers: [handled().handler] })
    const events: GroupEvent[] = []
    const told = counter()
    const watcher = deployment.producer()
    const stop = await watcher.watchGroups(event => {
      events.push(event)
      told.add()
    })
    const good = producer.group({ name: 'good' })
    good.add(step, 'a')
    const waits = [producer.waitForGroup(good), watcher.waitForGroup(good.id, { timeout: '20s' })]
    await good.submit()
    const [first, second] = await Promise.all(waits)
    expect(first).toMatchObject({
      id: good.id,
      name: 'good',
      state: 'succeeded',
      finishedAt: expect.any(Date),
      stuck: null,
    })
    expect(second).toEqual(first)
    expect(await producer.waitForGroup(good)).toEqual(first)
    const { group: failed } = await submitGraph(producer, step, { bad: [] })
    const { group: cancelled } = await submitGraph(producer, step, { later: [], never: ['later'] })
    await producer.cancelGroup(cancelled)
    for (const group of [failed, cancelled]) await producer.waitForGroup(group)
    await told.reached(3)
    const byId = Object.fromEntries(events.map(event => [event.id, event.event]))
    expect(byId[good.id]).toBe('succeeded')
    expect(byId[failed.id]).toBe('failed')
    expect(events).toHaveLength(3)
    stop()
    const { group: unheard } = await submitGraph(producer, step, { a: [] })
    await producer.waitForGroup(unheard)
    expect(events).toHaveLength(3)
  })

  it('[S5] that takes too long: the wait says how it stands; an abort ends it', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { group } = await submitGraph(producer, step, { a: [] })
    await expect(producer.waitForGroup(group, { timeout: 10 })).rejects.toMatchObject({
      code: 'WAIT_TIMEOUT',
      message: `group ${group.id} has not ended after 10 ms: it is queued: \`longshore groups ${group.id}\` tells what its jobs wait for`,
    })
    const nobody = newJobId()
    await expect(producer.waitForGroup(nobody, { timeout: 10 })).rejects.toMatchObject({
      code: 'WAIT_TIMEOUT',
      message: expect.stringContaining('no group with this id is known'),
    })
    const controller = new AbortController()
    const waiting = producer.waitForGroup(group, { signal: controller.signal })
    controller.abort(new Error('enough'))
    await expect(waiting).rejects.toThrow('enough')
    await expect(producer.waitForGroup(group, { signal: controller.signal })).rejects.toThrow('enough')
    await expect(producer.waitForGroup(group, { timeuot: 1 } as object)).rejects.toThrow('waitForGroup')
  })

  it('[S5] [S10] that nobody has written down is found by the sweep', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const gone = await workByHand(database, ['step'])
    const settled = await submitGraph(producer, step, { a: [] })
    const [claim] = await gone.claim(1)
    if (claim) await gone.settle([settling(claim)])
    const cancelled = await submitGraph(producer, step, { b: [] })
    await producer.cancel(cancelled.jobs.b)
    for (const { group } of [settled, cancelled])
      expect(await producer.getGroup(group)).toMatchObject({ finishedAt: null })
    await deployment.worker({ handlers: [handled().handler] })
    expect(await producer.waitForGroup(settled.group)).toMatchObject({ state: 'succeeded' })
    expect(await producer.waitForGroup(cancelled.group)).toMatchObject({ state: 'cancelled' })
    await eventually('nothing is unfinished', async () => {
      return (await database.rows('select from longshore.groups where finished_at is null')).length === 0
    })
  })
})
