import { pino } from 'pino'
import { afterEach, describe, expect, it } from 'vitest'
import { defineTask, type GroupEvent, type Producer, readWatchdog, setWatchdog } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<string>({ name: 'step', retry: { maxAttempts: 1 } })
const keyed = defineTask<string>({ name: 'keyed', concurrencyPerKey: 1 })
const limited = defineTask<string>({ name: 'limited', concurrency: 1 })

afterEach(() => database.rows('update longshore.settings set watchdog_ms = 600000, watchdog_cancels = false'))

interface Report {
  id: string
  isNew: boolean
  cancel?: string
  jobs: { id: string; task: string; state: string; reason: string }[]
}

interface Page {
  last: string | null
  report: Report | null
}

/** A whole look by hand, of somebody who has watched for an hour. */
async function look(watchingMs = 3_600_000, groups = 2, betweenMs = 0): Promise<Report[]> {
  const reports: Report[] = []
  for (let after: string | null = '00000000-0000-0000-0000-000000000000'; after !== null; ) {
    const [page]: Page[] = await database.rows<Page>(
      'select last, report from longshore.watch_groups($1, $2, 1000, $3, p_between_ms => $4)',
      [after, groups, watchingMs, betweenMs],
    )
    if (page?.report) reports.push(page.report)
    after = page?.last ?? null
  }
  return reports
}

/** Nothing has happened for so long. */
const pass = (time: string) =>
  database.rows('update longshore.groups set seen_at = seen_at - $1::interval', [time])

/** Two looks, and ten minutes between them. */
async function watch(): Promise<Report[]> {
  await look()
  await pass('11 minutes')
  return look()
}

/** Its lease outlives the test, however slow the machine is. */
async function handWorker(tasks: string[]) {
  const worker = await workByHand(database, tasks)
  await database.rows("update longshore.workers set expires_at = now() + interval '1 day' where id = $1", [
    worker.id,
  ])
  return worker
}

const excuseOf = async (group: { id: string }) =>
  (
    await database.rows<{ excuse: string | null }>('select longshore.why_group_is_idle($1) as excuse', [
      group.id,
    ])
  )[0]?.excuse

/** A group of `first` and `second`, which runs after it. */
async function chain(producer: Producer) {
  const group = producer.group({ name: 'chain' })
  const first = group.add(step, 'first')
  const second = group.add(step, 'second', { after: first })
  await group.submit()
  return { group, first, second }
}

/** A chain whose second job waits for more than there is: its first job has ended, and nothing moves it. */
async function frozen(producer: Producer) {
  const made = await chain(producer)
  await database.rows('update longshore.jobs set pending = 2 where id = $1', [made.second.id])
  return made
}

async function run(worker: Awaited<ReturnType<typeof handWorker>>) {
  const claimed = await worker.claim(1)
  expect(await worker.settle(claimed.map(settling))).toEqual([])
}

async function frozenAndRun(producer = deployment.producer({ tasks: [step] })) {
  const worker = await handWorker(['step'])
  const made = await frozen(producer)
  await run(worker)
  deployment.skipAudit('a counter is wrong on purpose')
  return { producer, worker, ...made }
}

const BARRIER = 85

describe('watchdog', () => {
  it('[S12] does not report a group that ends between the look at it and the report', async () => {
    const pause = { name: 'report_stuck', point: 'start', insertion: pauseAt(BARRIER) }
    /** Whether it counts as stuck, though it has ended. */
    const endMeanwhile = async () => {
      const { producer, group } = await frozenAndRun()
      await look()
      await pass('11 minutes')
      const [blocker, looking] = [await database.connect(), await database.connect()]
      await blocker.query('select pg_advisory_lock($1)', [BARRIER])
      const looked = looking.query(
        "select longshore.watch_groups('00000000-0000-0000-0000-000000000000', 2, 1000, 3600000)",
      )
      await waitsForLock(database, looking)
      await producer.cancelGroup(group)
      await blocker.query('select pg_advisory_unlock($1)', [BARRIER])
      await looked
      const rows = await database.rows(
        'select from longshore.groups where id = $1 and finished_at is not null and stuck is not null',
        [group.id],
      )
      return rows.length > 0
    }
    expect(await weakened(database, [pause], endMeanwhile)).toBe(false)
    const blind = { name: 'report_stuck', guard: 'not-ended' }
    expect(await weakened(database, [pause, blind], endMeanwhile)).toBe(true)
  })

  it('[S12] reports a frozen group with everything known about it, tells watchers, and counts it', async () => {
    deployment.skipAudit('a counter is wrong on purpose')
    const lines: Record<string, unknown>[] = []
    const logger = pino({ level: 'warn' }, { write: (line: string) => void lines.push(JSON.parse(line)) })
    // Until the first job has run: the worker may be slow to start.
    await setWatchdog({ postgres: database.url, after: 20_000 })
    const relay = await deployment.relay({ logger })
    const producer = deployment.producer({ tasks: [step] })
    const events: GroupEvent[] = []
    await producer.watchGroups(event => void events.push(event))
    const { group, first, second } = await frozen(producer)
    // Not before: it would run both jobs.
    await deployment.worker({ handlers: [step.handle(() => undefined)] })
    await eventually('the first job has run', async () => {
      return (await database.rows('select from longshore.finished_jobs where id = $1', [first.id])).length > 0
    })
    await setWatchdog({ postgres: database.url, after: 300 })

    await eventually('watchers hear of it', async () => events.length > 0)
    expect(events).toEqual([{ id: group.id, event: 'stuck' }])
    const jobs = [
      { id: second.id, task: 'step', state: 'waiting', reason: expect.stringContaining('doctor') },
    ]
    expect(await producer.getGroup(group)).toMatchObject({ state: 'dispatching', stuck: { jobs } })
    await eventually('it is logged', async () => lines.some(line => line['id'] === group.id))
    expect(lines.find(line => line['id'] === group.id)).toMatchObject({
      msg: expect.stringContaining('does not move'),
      name: 'chain',
      counts: { waiting: 1, succeeded: 1 },
      since: expect.any(String),
      jobs,
    })
    await eventually('it is counted', async () => relay.metrics().stuckGroups === 1)

    // It moves, and stands still again.
    const more = producer.addToGroup(group)
    const third = more.add(step, 'third', { after: first })
    await more.submit()
    await producer.waitFor(third)
    await eventually('watchers hear of it again', async () => events.length > 1)
    expect(events[1]).toEqual({ id: group.id, event: 'stuck' })

    await setWatchdog({ postgres: database.url, cancel: true })
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'cancelled', stuck: null })
    await eventually('watchers hear of that', async () => events.length > 2)
    expect(events[2]).toEqual({ id: group.id, event: 'cancelled' })
    await eventually('it is logged', async () =>
      lines.some(line => line['id'] === group.id && line['cancel'] === 'cancelled'),
    )
    await eventually('none is stuck', async () => relay.metrics().stuckGroups === 0)
  })

  it('[S12] reports once for each time it stands still, and again when it has moved in between', async () => {
    const { producer, worker, group, second } = await frozenAndRun()
    expect(await look()).toEqual([])
    expect(await look()).toEqual([])
    await pass('9 minutes')
    expect(await look()).toEqual([])
    await pass('1 minute')
    expect(await look()).toMatchObject([{ id: group.id, isNew: true, jobs: [{ id: second.id }] }])
    await pass('1 hour')
    expect(await look()).toEqual([])

    const more = producer.addToGroup(group)
    more.add(step, 'third')
    await more.submit()
    expect(await look()).toEqual([])
    expect(await producer.getGroup(group)).toMatchObject({ stuck: null })
    await run(worker)
    expect(await watch()).toMatchObject([{ id: group.id, isNew: true }])
  })

  it('[S12] gives everybody time after an outage', async () => {
    const { group } = await frozenAndRun()
    await look()
    await pass('1 hour')
    expect(await look(1000)).toEqual([])
    expect(await look(60_000)).toMatchObject([{ id: group.id }])
  })

  it('[S12] cancels it where the settings say so, also when they say so later', async () => {
    const { producer, group, second } = await frozenAndRun()
    expect(await watch()).toMatchObject([{ id: group.id, isNew: true }])
    await database.rows('update longshore.settings set watchdog_cancels = true')
    expect(await look()).toMatchObject([{ id: group.id, isNew: false, cancel: 'cancelled' }])
    expect(await producer.getGroup(group)).toMatchObject({ state: 'cancelled' })
    expect(await producer.get(second)).toMatchObject({ state: 'cancelled' })
    expect(await watch()).toEqual([])
  })

  it('[S12] tells of one that it cannot cancel now, and cancels it later', async () => {
    const { producer, group, second } = await frozenAndRun()
    await database.rows('update longshore.settings set watchdog_cancels = true')
    const other = await database.connect()
    await other.query('begin')
    await other.query('select from longshore.jobs where id = $1 for update', [second.id])
    const [report] = await watch()
    expect(report).toMatchObject({ id: group.id, isNew: true })
    expect(report?.cancel).toBeUndefined()
    await other.query('rollback')
    expect(await look()).toMatchObject([{ id: group.id, isNew: false, cancel: 'cancelled' }])
    expect(await producer.getGroup(group)).toMatchObject({ state: 'cancelled' })
  })

  it('[S12] waits for nobody who holds a group, and looks at every group whatever the size of a page', async () => {
    const { producer, group } = await frozenAndRun()
    const others = await Promise.all(
      Array.from({ length: 5 }, () => frozenAndRun(producer).then(made => made.group.id)),
    )
    await look()
    await pass('1 hour')
    const holder = await database.connect()
    await holder.query('begin')
    await holder.query('select from longshore.groups where id = $1 for update', [group.id])
    const found = await look()
    expect(found.map(({ id }) => id)).toEqual([...others].sort())
    await holder.query('rollback')
    expect(await look()).toMatchObject([{ id: group.id }])
  })

  it('[S12] finds groups that wait for the turns of each other, and cancelling one of them is enough', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const worker = await handWorker(['step'])
    const [one, two] = [producer.group({ name: 'one' }), producer.group({ name: 'two' })]
    // Each has the first place of a workflow, for a job behind one that stands second in the other's.
    const add = async (group: typeof one, own: string) => {
      const gate = group.add(step, 'gate')
      group.add(step, own, { after: gate, workflow: own })
      await group.submit()
    }
    await add(one, 'a')
    await add(two, 'b')
    const behind = async (group: typeof one, other: string) => {
      const more = producer.addToGroup(group)
      const waits = more.add(step, `waits for ${other}`, { workflow: other })
      await more.submit()
      return waits
    }
    const [waitsOne, waitsTwo] = [await behind(one, 'b'), await behind(two, 'a')]
    // What has the turn waits for what waits for the other's turn.
    const [headOne, headTwo] = await database.rows<{ id: string; group_id: string }>(
      'select id, group_id from longshore.jobs where has_turn order by workflow',
    )
    for (const [head, parent] of [
      [headOne, waitsOne],
      [headTwo, waitsTwo],
    ] as const) {
      await database.rows('insert into longshore.edges (parent, child) values ($1, $2)', [
        parent.id,
        head?.id,
      ])
      await database.rows('update longshore.jobs set pending = pending + 1 where id = $1', [head?.id])
    }
    await run(worker)
    await run(worker)

    expect([await excuseOf(one), await excuseOf(two)]).toEqual([null, null])
    const found = await watch()
    expect(found.map(({ id }) => id)).toEqual([one.id, two.id].sort())
    for (const { jobs } of found)
      expect(jobs.map(job => job.reason).join()).toMatch(
        /waits for its turn in workflow [ab], which job .* has/,
      )

    await database.rows('update longshore.settings set watchdog_cancels = true')
    expect(await look()).toMatchObject([{ isNew: false, cancel: 'cancelled' }])
    await run(worker)
    await run(worker)
    await database.rows('select longshore.sweep_groups($1, 10)', ['00000000-0000-0000-0000-000000000000'])
    expect(await database.rows('select end_state as state from longshore.groups order by end_state')).toEqual(
      [{ state: 'cancelled' }, { state: 'succeeded' }],
    )
  })

  it('setWatchdog keeps what is not given, and refuses what makes no sense', async () => {
    const where = { postgres: database.url }
    expect(await readWatchdog(where)).toEqual({ afterMs: 600_000, cancel: false })
    expect(await setWatchdog({ ...where, after: '5m' })).toEqual({ afterMs: 300_000, cancel: false })
    expect(await setWatchdog({ ...where, cancel: true })).toEqual({ afterMs: 300_000, cancel: true })
    expect(await readWatchdog(where)).toEqual({ afterMs: 300_000, cancel: true })
    await expect(setWatchdog({ ...where, after: 99 })).rejects.toThrow('between 100 ms and a year')
    await expect(setWatchdog({ ...where, after: '2000d' })).rejects.toThrow('between 100 ms and a year')
    await expect(setWatchdog({ ...where, cancel: 1 as never })).rejects.toThrow('true or false')
  })
})

describe('what excuses a group', () => {
  const quiet = async (group: { id: string }, excuse: string) => {
    expect(await watch()).toEqual([])
    expect(await excuseOf(group)).toBe(excuse)
  }
  const notQuiet = async (group: { id: string }, reason: string) => {
    expect(await watch()).toMatchObject([
      {
        id: group.id,
        jobs: expect.arrayContaining([expect.objectContaining({ reason: expect.stringContaining(reason) })]),
      },
    ])
  }

  it('[S11] a job of it runs under a worker that is alive', async () => {
    const worker = await handWorker(['step'])
    const { group } = await chain(deployment.producer({ tasks: [step] }))
    await worker.claim(1)
    await quiet(group, 'running')
    await database.rows("update longshore.workers set expires_at = now() - interval '1 second'")
    await notQuiet(group, `under worker ${worker.id}, which is gone`)
  })

  it('[S11] a job of it is due later', async () => {
    await handWorker(['step'])
    const group = deployment.producer({ tasks: [step] }).group()
    const later = group.add(step, 'later', { delay: '1h' })
    await group.submit()
    await quiet(group, 'due later')
    await database.rows('update longshore.jobs set score = score - 7200000 where id = $1', [later.id])
    await notQuiet(group, 'nobody has made it ready')
  })

  it('[S11] its workflow was stopped', async () => {
    const worker = await handWorker(['step'])
    const producer = deployment.producer({ tasks: [step] })
    await producer.enqueue(step, 'first', { workflow: 'w', onWorkflowFailure: 'halt' })
    const group = producer.group()
    group.add(step, 'second', { workflow: 'w' })
    await group.submit()
    const [claimed] = await worker.claim(1)
    await worker.settleOthers([{ id: claimed?.id, token: claimed?.lease_token, outcome: 'failed' }])
    await quiet(group, 'halted')
    await producer.resumeWorkflow('w')
    await notQuiet(group, 'is ready, and none of the 1 workers')
  })

  it('[S11] another job has the turn of its workflow', async () => {
    const worker = await handWorker(['step'])
    const producer = deployment.producer({ tasks: [step] })
    await producer.enqueue(step, 'first', { workflow: 'w' })
    const group = producer.group()
    group.add(step, 'second', { workflow: 'w' })
    await group.submit()
    await quiet(group, 'turn')
    await run(worker)
    await notQuiet(group, 'is ready')
  })

  it('[S11] the job that has the turn waits in a group that is excused', async () => {
    const worker = await handWorker(['step'])
    const producer = deployment.producer({ tasks: [step] })
    const other = producer.group()
    other.add(step, 'head', { workflow: 'w', after: other.add(step, 'parent') })
    await other.submit()
    const group = producer.group()
    group.add(step, 'second', { workflow: 'w' })
    await group.submit()
    await worker.claim(1)
    await quiet(group, 'running')
    // Without following the turn, a group would be cancelled because another takes its time.
    const blind = { name: 'why_group_is_idle', guard: 'follow-turns' }
    expect(await weakened(database, [blind], () => excuseOf(group))).toBeNull()
    await database.rows("update longshore.workers set expires_at = now() - interval '1 second'")
    expect((await watch()).map(({ id }) => id)).toEqual([other.id, group.id].sort())
  })

  it('[S11] no worker that is alive may run its jobs', async () => {
    await handWorker(['other'])
    const { group } = await chain(deployment.producer({ tasks: [step] }))
    await quiet(group, 'no worker')
    await handWorker(['step'])
    await notQuiet(group, 'is ready, and none of the 1 workers')
  })

  it('[S11] a limit is full', async () => {
    const worker = await handWorker(['limited'])
    const producer = deployment.producer({ tasks: [limited] })
    await producer.enqueue(limited, 'first')
    const claimed = await worker.claim(1)
    await handWorker(['limited'])
    const group = producer.group()
    group.add(limited, 'second')
    await group.submit()
    await quiet(group, 'limit')
    await worker.settle(claimed.map(settling))
    await notQuiet(group, 'is ready, and none of the 2 workers')
  })

  it('[S11] jobs of others go first, unless a limit holds those', async () => {
    await handWorker(['step', 'limited'])
    const producer = deployment.producer({ tasks: [step, limited] })
    const first = await producer.enqueue(step, 'first', { priority: 10 })
    const { group } = await chain(producer)
    await quiet(group, 'in line')
    await producer.cancel(first)

    const other = await handWorker(['limited'])
    await producer.enqueue(limited, 'runs', { priority: 10 })
    await producer.enqueue(limited, 'waits', { priority: 10 })
    expect(await other.claim(1)).toHaveLength(1)
    await notQuiet(group, 'is ready, and none of the 1 workers')
  })

  it('[S11] jobs of others with a key go first', async () => {
    await handWorker(['step', 'keyed'])
    const producer = deployment.producer({ tasks: [step, keyed] })
    const first = await producer.enqueue(keyed, 'first', { priority: 10, concurrencyKey: 'k' })
    const { group } = await chain(producer)
    await quiet(group, 'in line')
    await producer.cancel(first)
    await notQuiet(group, 'is ready')
  })

  it('[S11] every worker that may run its jobs runs something', async () => {
    const worker = await handWorker(['step', 'other'])
    const other = defineTask<string>({ name: 'other' })
    const producer = deployment.producer({ tasks: [step, other] })
    await producer.enqueue(other, 'first')
    const claimed = await worker.claim(1)
    const { group } = await chain(producer)
    await quiet(group, 'busy')
    await worker.settle(claimed.map(settling))
    await notQuiet(group, 'is ready')
  })

  it('[S11] ends a moment before the look: the group still has its time', async () => {
    const worker = await handWorker(['step', 'other'])
    const other = defineTask<string>({ name: 'other' })
    const producer = deployment.producer({ tasks: [step, other] })
    /** What is found when something excuses the group for six minutes, and nothing for the next six. */
    const excusedAtFirst = async () => {
      await producer.enqueue(other, 'first')
      const claimed = await worker.claim(1)
      const { group } = await chain(producer)
      await look()
      await pass('6 minutes')
      expect(await look()).toEqual([])
      await worker.settle(claimed.map(settling))
      await pass('6 minutes')
      const found = await look()
      await pass('5 minutes')
      const later = await look()
      await producer.cancelGroup(group)
      return [found.length, later.length]
    }
    expect(await excusedAtFirst()).toEqual([0, 1])
    // Asked for only at the end, an excuse that has just gone would not count.
    const late = { name: 'watch_groups', guard: 'ask-early' }
    expect(await weakened(database, [late], excusedAtFirst)).toEqual([1, 0])
  })

  it('[X12] [S11] of which there are so many that looks are rare: a group is found by the second look that has nothing to excuse it', async () => {
    await handWorker(['step'])
    const producer = deployment.producer({ tasks: [step] })
    const rarely = () => look(3_600_000, 2, 600_000)
    const found = async () => {
      const { group } = await chain(producer)
      await rarely()
      await pass('11 minutes')
      const first = await rarely()
      await pass('11 minutes')
      const second = await rarely()
      await producer.cancelGroup(group)
      return [first.length, second.length]
    }
    expect(await found()).toEqual([0, 1])
    // What excused it may have ended a moment ago.
    expect(await weakened(database, [{ name: 'watch_groups', guard: 'looked-before' }], found)).toEqual([
      1, 0,
    ])
  })
})
