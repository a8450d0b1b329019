import { describe, expect, inject, it } from 'vitest'
import { createRelay, defineTask, newJobId, type Producer, type Reason } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<string, string>({ name: 'step', retry: { maxAttempts: 1 } })

/** The job's reasons; and of the first of them that it says what its sentence is to tell. */
async function explained(producer: Producer, job: { id: string }) {
  const explanation = await producer.explain(job.id)
  if (!explanation) throw new Error('there is no such job')
  expect(explanation.id).toBe(job.id)
  expect(explanation.summary).toContain(`job ${job.id} of task `)
  for (const { sentence } of explanation.reasons) expect(explanation.summary).toContain(sentence)
  return explanation
}

const kindsOf = (reasons: Reason[]) => reasons.map(({ kind }) => kind)

/** A worker whose handler of `step` fails for 'bad', and for anything else runs until the gate opens. */
async function holdingWorker(options: { tasks?: (typeof step)[] } = {}) {
  const done = gate()
  await deployment.worker({
    name: 'holding',
    handlers: (options.tasks ?? [step]).map(task =>
      task.handle(async job => {
        if (job.payload === 'bad') throw new Error('the paper ran out')
        await done.opened
        return job.payload
      }),
    ),
  })
  return { id: await idOf('holding'), done }
}

const idOf = async (worker: string) =>
  (await database.rows<{ id: number }>('select id from longshore.workers where name = $1', [worker]))[0]?.id

const untilRunning = (producer: Producer, ...jobs: { id: string }[]) =>
  eventually('they run', async () => {
    const found = await Promise.all(jobs.map(job => producer.get(job.id)))
    return found.every(job => job?.state === 'running')
  })

const START_ONE =
  'start one with a handler for task step, createWorker({ handlers }) or `longshore worker <module>`'

describe('explain', () => {
  it('[S16] knows nothing of a job that is not there, and refuses what is no id', async () => {
    const producer = deployment.producer()
    expect(await producer.explain(newJobId())).toBeUndefined()
    await expect(producer.explain('42')).rejects.toMatchObject({ code: 'JOB_INVALID' })
  })

  it('[S16] names the dependencies that are open, at most 20 of them, and how many there are', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const group = producer.group()
    const parents = Array.from({ length: 25 }, (_, n) => group.add(step, `${n}`))
    const child = group.add(step, 'child', { after: parents })
    const grandchild = group.add(step, 'grandchild', { after: child })
    await group.submit()
    const { state, reasons } = await explained(producer, child)
    expect(state).toBe('waiting')
    // Also that nobody could run it, if its turn came.
    expect(kindsOf(reasons)).toEqual(['dependencies', 'no_worker'])
    const [reason] = reasons
    if (reason?.kind !== 'dependencies') throw new Error('no dependencies')
    expect(reason.count).toBe(25)
    expect(reason.jobs).toEqual(parents.slice(0, 20).map(({ id }) => ({ id, task: 'step', state: 'ready' })))
    expect(reason.sentence).toContain(`it waits for 25 jobs to end: ${parents[0]?.id} (step, ready)`)
    expect(reason.sentence).toContain('and 22 more')
    expect((await explained(producer, grandchild)).reasons[0]).toMatchObject({
      kind: 'dependencies',
      count: 1,
      jobs: [{ id: child.id, task: 'step', state: 'waiting' }],
      sentence: `it waits for 1 job to end: ${child.id} (step, waiting)`,
    })
  })

  it('[S16] leaves out the dependencies that have ended', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const other = defineTask({ name: 'other' })
    const { done } = await holdingWorker()
    const group = producer.group()
    const ended = group.add(step, 'a')
    const open = group.add(other, 'b')
    const child = group.add(step, 'c', { after: [ended, open] })
    await group.submit()
    done.open()
    await producer.waitFor(ended.id)
    expect((await explained(producer, child)).reasons).toMatchObject([
      { kind: 'dependencies', count: 1, jobs: [{ id: open.id, task: 'other', state: 'ready' }] },
    ])
  })

  it("[S16] tells who has the workflow's turn, and how many come first", async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { done } = await holdingWorker()
    const [first, second, third] = await producer.enqueueMany(step, ['a', 'b', 'c'], { workflow: 'album 7' })
    if (!first || !second || !third) throw new Error('not enqueued')
    await untilRunning(producer, first)
    const holder = { id: first.id, task: 'step', state: 'running' }
    expect((await explained(producer, second)).reasons).toMatchObject([
      {
        kind: 'turn',
        workflow: 'album 7',
        holder,
        ahead: 0,
        sentence: `it waits for its turn in workflow album 7: job ${first.id} (step, running) has it`,
      },
    ])
    expect((await explained(producer, third)).reasons).toMatchObject([
      { kind: 'turn', holder, ahead: 1, sentence: expect.stringContaining('and then 1 other comes first') },
    ])
    done.open()
    await producer.waitFor(third)
  })

  it('[S16] tells that the workflow was halted, by which job and why, and how to resume it', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { done } = await holdingWorker()
    const options = { workflow: "it's", onWorkflowFailure: 'halt' } as const
    const bad = await producer.enqueue(step, 'bad', options)
    const next = await producer.enqueue(step, 'next', options)
    await producer.waitFor(bad)
    const { reasons } = await explained(producer, next)
    expect(reasons).toMatchObject([{ kind: 'halted', workflow: "it's", haltedBy: bad.id }])
    expect(reasons[0]?.sentence).toContain(`halted by the failure of job ${bad.id} (the paper ran out)`)
    expect(reasons[0]?.sentence).toContain('producer.resumeWorkflow("it\'s")')
    expect(reasons[0]?.sentence).toContain("`longshore workflows 'it'\\''s' --resume`")
    expect(await producer.resumeWorkflow("it's")).toBe('resumed')
    done.open()
    expect(await producer.waitFor(next)).toMatchObject({ state: 'succeeded' })
  })

  it('[S16] names what has all slots of the task, and of its key', async () => {
    const limited = defineTask<string, string>({
      name: 'limited',
      concurrency: 3,
      concurrencyPerKey: 2,
    })
    const producer = deployment.producer({ tasks: [limited] })
    const { id: workerId, done } = await holdingWorker({ tasks: [limited] })
    const [a1, a2] = await producer.enqueueMany(limited, ['a1', 'a2'], { concurrencyKey: 'ada' })
    if (!a1 || !a2) throw new Error('not enqueued')
    await untilRunning(producer, a1, a2)
    const a3 = await producer.enqueue(limited, 'a3', { concurrencyKey: 'ada' })
    const forKey = await explained(producer, a3)
    expect(forKey.state).toBe('ready')
    expect(forKey.reasons).toMatchObject([{ kind: 'limit', key: 'ada', capacity: 2, used: 2 }])
    const [keyReason] = forKey.reasons
    if (keyReason?.kind !== 'limit') throw new Error('no limit')
    const holders = [a1, a2].map(({ id }) => ({ id, workerId }))
    expect(keyReason.holders).toHaveLength(2)
    expect(keyReason.holders).toEqual(expect.arrayContaining(holders))
    expect(keyReason.sentence).toContain('all 2 slots of task limited for key ada are taken: job ')

    const b1 = await producer.enqueue(limited, 'b1', { concurrencyKey: 'bob' })
    await untilRunning(producer, b1)
    const b2 = await producer.enqueue(limited, 'b2', { concurrencyKey: 'bob' })
    const plain = await producer.enqueue(limited, 'plain')
    for (const job of [b2, plain]) {
      const { reasons } = await explained(producer, job)
      expect(reasons).toMatchObject([{ kind: 'limit', key: null, capacity: 3, used: 3 }])
      if (reasons[0]?.kind !== 'limit') throw new Error('no limit')
      expect(reasons[0].holders).toHaveLength(3)
      expect(reasons[0].holders).toEqual(expect.arrayContaining([...holders, { id: b1.id, workerId }]))
    }
    expect(kindsOf((await explained(producer, a3)).reasons)).toEqual(['limit', 'limit'])
    done.open()
    await Promise.all([a3, b2, plain].map(job => producer.waitFor(job)))
  })

  it('[S16] tells that a limit was lowered below what runs', async () => {
    const wide = defineTask<string, string>({ name: 'narrowed', concurrency: 2 })
    const producer = deployment.producer({ tasks: [wide] })
    const { done } = await holdingWorker({ tasks: [wide] })
    const running = await producer.enqueueMany(wide, ['a', 'b'])
    await untilRunning(producer, ...running)
    // A producer may not change a limit that is there.
    const narrowed = defineTask<string, string>({ name: 'narrowed', concurrency: 1 })
    const narrow = deployment.producer({ postgres: database.url, tasks: [narrowed] })
    const next = await narrow.enqueue(narrowed, 'c')
    expect((await explained(narrow, next)).reasons).toMatchObject([
      {
        kind: 'limit',
        capacity: 1,
        used: 2,
        sentence: expect.stringContaining(
          '2 jobs of task narrowed run, and 1 may since its limit was lowered',
        ),
      },
    ])
    done.open()
    await producer.waitFor(next)
  })

  it('[S16] tells that no worker is alive, or that none serves the task', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const job = await producer.enqueue(step, 'a')
    expect((await explained(producer, job)).reasons).toMatchObject([
      {
        kind: 'no_worker',
        lacking: { task: 'step' },
        closest: null,
        sentence: `no worker is alive: ${START_ONE}`,
      },
    ])
    const other = defineTask({ name: 'other' })
    await deployment.worker({ handlers: [other.handle(() => undefined)] })
    expect((await explained(producer, job)).reasons).toMatchObject([
      {
        kind: 'no_worker',
        lacking: { task: 'step' },
        closest: null,
        sentence: `no live worker serves task step (1 is alive): ${START_ONE}`,
      },
    ])
  })

  it('[S16] names the constraint, the tag and the queue that no live worker meets, and who comes closest', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const handlers = [step.handle(job => job.payload)]
    await deployment.worker({ handlers, name: 'far', properties: { region: 'eu' } })
    const near = await deployment.worker({ handlers, name: 'near', properties: { gpu: 't4', mem: 'high' } })
    const closest = { id: await idOf('near'), name: 'near' }

    const constrained = await producer.enqueue(step, 'a', { constraints: { gpu: 'a100', mem: 'high' } })
    expect((await explained(producer, constrained)).reasons).toEqual([
      {
        kind: 'no_worker',
        lacking: { constraints: { gpu: 'a100' } },
        closest,
        sentence: `2 live workers serve task step, but none has gpu=a100; worker ${closest.id} (near) comes closest, with gpu=t4`,
      },
    ])
    const tagged = await producer.enqueue(step, 'b', { tag: 'arm', constraints: { gpu: 't4' } })
    expect((await explained(producer, tagged)).reasons).toMatchObject([
      {
        kind: 'no_worker',
        lacking: { tag: 'arm' },
        closest,
        sentence: expect.stringContaining('but none offers tag arm'),
      },
    ])
    const queued = await producer.enqueue(step, 'c', {
      queue: 'night',
      constraints: { gpu: 't4', region: 'eu' },
    })
    expect((await explained(producer, queued)).reasons).toMatchObject([
      {
        kind: 'no_worker',
        lacking: { queue: 'night', constraints: expect.anything() },
        sentence: expect.stringMatching(
          /but none serves queue night; worker \d+ \(far\) comes closest, with no gpu$/,
        ),
      },
    ])
    await near.setProperties({ gpu: 'a100', mem: 'high' })
    await producer.waitFor(constrained)
  })

  it('[S16] says that nobody has together what each of several workers has a part of', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const handlers = [step.handle(job => job.payload)]
    await deployment.worker({ handlers, name: 'fast', properties: { gpu: 'a100' } })
    await deployment.worker({ handlers, name: 'large', properties: { mem: 'high' }, queues: ['night'] })
    const id = await idOf('fast')

    const both = await producer.enqueue(step, 'a', {
      queue: 'night',
      constraints: { gpu: 'a100', mem: 'high' },
    })
    expect((await explained(producer, both)).reasons).toMatchObject([
      {
        lacking: { constraints: { gpu: 'a100' } },
        sentence: `2 live workers serve task step, but none serves queue night and has gpu=a100 and has mem=high at once; worker ${await idOf('large')} (large) comes closest, with no gpu`,
      },
    ])
    const apart = await producer.enqueue(step, 'b', { queue: 'night', constraints: { gpu: 'a100' } })
    expect((await explained(producer, apart)).reasons).toMatchObject([
      {
        lacking: { queue: 'night' },
        sentence: `2 live workers serve task step, but none serves queue night and has gpu=a100 at once; worker ${id} (fast) comes closest, with no queue night`,
      },
    ])
    const alike = await producer.enqueue(step, 'c', { queue: 'night', constraints: { mem: 'low' } })
    expect((await explained(producer, alike)).reasons).toMatchObject([
      {
        lacking: { constraints: { mem: 'low' } },
        sentence: `2 live workers serve task step, but none has mem=low; worker ${await idOf('large')} (large) comes closest, with mem=high`,
      },
    ])
  })

  it('[S16] tells when it is due, and after which failure', async () => {
    const flaky = defineTask<string, string>({
      name: 'flaky',
      retry: { maxAttempts: 3, backoff: { type: 'fixed', delay: '1h' } },
    })
    const producer = deployment.producer({ tasks: [flaky] })
    const later = await producer.enqueue(flaky, 'a', { runAt: new Date('2100-01-01T00:00:00Z') })
    expect((await explained(producer, later)).reasons).toMatchObject([
      {
        kind: 'due',
        at: new Date('2100-01-01T00:00:00Z'),
        sentence: 'it is due at 2100-01-01T00:00:00.000Z',
      },
      { kind: 'no_worker' },
    ])
    await holdingWorker({ tasks: [flaky] })
    const retried = await producer.enqueue(flaky, 'bad')
    await eventually('it waits for its next attempt', async () => {
      const job = await producer.get(retried)
      return job?.state === 'scheduled'
    })
    const { reasons } = await explained(producer, retried)
    expect(reasons).toMatchObject([{ kind: 'due', error: 'the paper ran out' }])
    expect(reasons[0]?.sentence).toContain('since attempt 1 of 3 failed (the paper ran out)')
  })

  it('[S16] tells that it is overdue because nobody does the upkeep', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const job = await producer.enqueue(step, 'a', { delay: '100ms' })
    // Whoever did the upkeep in an earlier test may hold the lease for a moment longer.
    await eventually('it is overdue, and nobody sees to it', async () => {
      const { reasons } = await explained(producer, job)
      return reasons[0]?.sentence.includes('nobody does the upkeep that makes it ready') === true
    })
    expect(await explained(producer, job)).toMatchObject({
      state: 'scheduled',
      reasons: [{ kind: 'due' }, {}],
    })
  })

  it('[S16] tells that a counter is wrong, and what repairs it', async () => {
    deployment.skipAudit('nothing but damage makes a job wait for nothing')
    const producer = deployment.producer({ tasks: [step] })
    const job = await producer.enqueue(step, 'a')
    await database.rows("update longshore.jobs set state = 'waiting', pending = 2 where id = $1", [job.id])
    expect((await explained(producer, job)).reasons[0]).toMatchObject({
      kind: 'miscounted',
      pending: 2,
      sentence: expect.stringContaining('longshore doctor --repair'),
    })
  })

  it('[S16] tells where it runs and since when', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { id: workerId, done } = await holdingWorker()
    const job = await producer.enqueue(step, 'a')
    await untilRunning(producer, job)
    const found = await producer.get(job)
    const since = found?.state === 'running' ? found.startedAt : undefined
    expect((await explained(producer, job)).reasons).toEqual([
      {
        kind: 'running',
        workerId,
        workerName: 'holding',
        isWorkerLive: true,
        since,
        sentence: `it runs on worker ${workerId} (holding) since ${since?.toISOString()}`,
      },
    ])
    done.open()
    await producer.waitFor(job)
  })

  it('[S16] tells that it is being cancelled, and that its worker has gone', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const job = await producer.enqueue(step, 'a')
    const worker = await workByHand(database, ['step'])
    const [claimed] = await worker.claim(1)
    if (!claimed) throw new Error('not claimed')
    expect(await producer.cancel(job)).toBe('cancelling')
    const running = { kind: 'running', workerId: worker.id }
    expect((await explained(producer, job)).reasons).toMatchObject([
      { kind: 'cancelling' },
      { ...running, isWorkerLive: true },
    ])
    await database.rows('update longshore.workers set expires_at = now() where id = $1', [worker.id])
    expect((await explained(producer, job)).reasons).toMatchObject([
      { kind: 'cancelling' },
      { ...running, isWorkerLive: false, sentence: expect.stringContaining('whose lease has run out') },
    ])
    await worker.settle([settling(claimed)])
    expect(await explained(producer, job)).toMatchObject({ state: 'cancelled' })
  })

  it('[S16] tells how it ended, and why', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { done } = await holdingWorker()
    done.open()
    const [good, bad] = await producer.enqueueMany(step, ['good', 'bad'])
    const never = await producer.enqueue(step, 'never', { delay: '1h' })
    if (!good || !bad) throw new Error('not enqueued')
    const ended = await producer.waitFor(good)
    await producer.waitFor(bad)
    await producer.cancel(never)
    expect(await explained(producer, good)).toMatchObject({
      state: 'succeeded',
      reasons: [{ kind: 'ended', at: ended.finishedAt, error: null, parent: null, cause: null }],
    })
    expect(await explained(producer, bad)).toMatchObject({
      state: 'failed',
      reasons: [
        {
          kind: 'ended',
          error: 'the paper ran out',
          sentence: expect.stringMatching(/: the paper ran out$/),
        },
      ],
    })
    expect(await explained(producer, never)).toMatchObject({
      state: 'cancelled',
      reasons: [{ kind: 'ended', error: null }],
    })
  })

  it('[S16] names the parent whose failure ended it, and where that began', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const { done } = await holdingWorker()
    done.open()
    const group = producer.group()
    const fine = group.add(step, 'fine')
    const bad = group.add(step, 'bad')
    const child = group.add(step, 'child', { after: [fine, bad] })
    const grandchild = group.add(step, 'grandchild', { after: child })
    const dropped = group.add(step, 'dropped', { after: { job: grandchild, onFailure: 'cancel' } })
    await group.submit()
    await producer.waitForGroup(group)
    const failed = { id: bad.id, task: 'step', state: 'failed' }
    expect(await explained(producer, child)).toMatchObject({
      state: 'dependency_failed',
      reasons: [{ kind: 'ended', parent: failed, cause: null }],
    })
    const { reasons } = await explained(producer, grandchild)
    expect(reasons).toMatchObject([
      { kind: 'ended', parent: { id: child.id, state: 'dependency_failed' }, cause: failed },
    ])
    expect(reasons[0]?.sentence).toContain(`it began with job ${bad.id} (step, failed): the paper ran out`)
    expect(await explained(producer, dropped)).toMatchObject({
      state: 'cancelled',
      reasons: [{ kind: 'ended', parent: { id: grandchild.id }, cause: failed }],
    })
  })

  it('[S16] tells that nothing keeps it, who may take it, and how many come first', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const done = gate()
    await deployment.worker({
      name: 'busy',
      maxConcurrentTasks: 1,
      handlers: [step.handle(job => done.opened.then(() => job.payload))],
    })
    const id = await idOf('busy')
    const first = await producer.enqueue(step, 'a')
    await untilRunning(producer, first)
    const [second, third] = await producer.enqueueMany(step, ['b', 'c'])
    if (!second || !third) throw new Error('not enqueued')
    await eventually('both are placed', async () => {
      const { reasons } = await explained(producer, third)
      return reasons[0]?.kind === 'ready'
    })
    expect((await explained(producer, third)).reasons).toMatchObject([
      {
        kind: 'ready',
        count: 1,
        workers: [{ id, name: 'busy' }],
        ahead: 1,
        sentence: `nothing keeps it; 1 live worker may take it, after 1 job of its kind: ${id} (busy)`,
      },
    ])
    done.open()
    await producer.waitFor(third)
  })
})

describe.runIf(inject('dispatch') === 'redis')('explain, with Redis in front', () => {
  it('[S16] tells that an outbox row still names it', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const relay = createRelay({
      postgres: database.urlOf('relay'),
      redis: deployment.redisOf('relay') as string,
    })
    await relay.start()
    await eventually('jobs go through Redis', async () => {
      const [settings] = await database.rows('select dispatch from longshore.settings')
      return settings?.['dispatch'] === 'redis'
    })
    await relay.stop()
    // Alive, and asks for nothing.
    await workByHand(database, ['step'])
    const job = await producer.enqueue(step, 'a')
    const { reasons } = await explained(producer, job)
    expect(kindsOf(reasons)).toEqual(['not_placed', 'ready'])
    expect(reasons[0]?.sentence).toContain('no relay is leading: start `longshore relay`')
  })
})
