import { afterEach, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { type StoreProxy, startProxy } from '../support/proxy.ts'
import { counter, eventually, gate } from '../support/signals.ts'

const database = useDatabase()
let proxy: StoreProxy | undefined
afterEach(async () => {
  await proxy?.close()
  proxy = undefined
})
const deployment = useDeployment(database)
const step = defineTask<string, string>({
  name: 'step',
  retry: { maxAttempts: 1, maxRescues: 1 },
})

const numbers = (count: number) => Array.from({ length: count }, (_, n) => `${n}`)

const workflows = () =>
  database.rows<{ key: string; is_halted: boolean }>(
    'select key, halted_by is not null as is_halted from longshore.workflows order by key',
  )

describe('a workflow', () => {
  it('[W2] runs calls that nobody waited for in their order', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const ran: string[] = []
    const handler = step.handle(job => {
      ran.push(job.payload)
      return job.payload
    })
    for (let n = 0; n < 2; n++) await deployment.worker({ handlers: [handler] })
    const refs = await Promise.all(
      numbers(20).map(payload => producer.enqueue(step, payload, { workflow: 'w' })),
    )
    await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(ran).toEqual(numbers(20))
    expect(await workflows()).toEqual([])
  })

  it.each([0, 30])(
    '[W2] runs 10 jobs in order on 3 workers; one that is tried again after %i ms keeps the turn',
    async delay => {
      const flaky = defineTask<string>({
        name: 'flaky',
        retry: { maxAttempts: 3, backoff: { type: 'fixed', delay } },
      })
      const producer = deployment.producer({ tasks: [flaky] })
      const ran: string[] = []
      const handler = flaky.handle(job => {
        ran.push(`${job.payload}#${job.attempt}`)
        if (Number(job.payload) % 3 >= job.attempt) throw new Error('not yet')
      })
      for (let n = 0; n < 3; n++) await deployment.worker({ handlers: [handler] })
      const refs = await producer.enqueueMany(flaky, numbers(10), { workflow: 'w' })
      await Promise.all(refs.map(ref => producer.waitFor(ref)))
      expect(ran).toEqual(
        numbers(10).flatMap(n =>
          Array.from({ length: (Number(n) % 3) + 1 }, (_, attempt) => `${n}#${attempt + 1}`),
        ),
      )
    },
  )

  it('[W2] waits for a job that is not due, at its head and in the middle, and for one of low priority', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const ran: string[] = []
    const handler = step.handle(job => {
      ran.push(job.payload)
      return ''
    })
    const given = [{ delay: 100 }, { priority: 5 }, { delay: 200 }, { priority: 9 }]
    const refs = []
    for (const [n, options] of given.entries())
      refs.push(await producer.enqueue(step, `${n}`, { workflow: 'w', ...options }))
    for (let n = 0; n < 2; n++) await deployment.worker({ handlers: [handler] })
    await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(ran).toEqual(numbers(4))
  })

  it('[W2] holds for jobs of several tasks, and for nobody else', async () => {
    const other = defineTask<string>({ name: 'other' })
    const producer = deployment.producer({ tasks: [step, other] })
    const [begun, mayEnd] = [gate(), gate()]
    const ran: string[] = []
    await deployment.worker({
      handlers: [
        step.handle(async job => {
          ran.push(job.payload)
          begun.open()
          await mayEnd.opened
          return ''
        }),
        other.handle(job => {
          ran.push(job.payload)
        }),
      ],
    })
    const refs = [
      await producer.enqueue(step, 'w1', { workflow: 'w' }),
      await producer.enqueue(other, 'w2', { workflow: 'w' }),
    ]
    await begun.opened
    for (const given of [{ workflow: 'v' }, {}])
      await producer.waitFor(await producer.enqueue(other, 'free', given))
    expect(ran).toEqual(['w1', 'free', 'free'])
    mayEnd.open()
    await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(ran).toEqual(['w1', 'free', 'free', 'w2'])
  })

  it('[W2] passes the turn with the commit of a completion transaction, and not with its rollback', async () => {
    const flaky = defineTask<string>({ name: 'flaky', retry: { backoff: { type: 'fixed', delay: 0 } } })
    const producer = deployment.producer({ tasks: [flaky] })
    const ran: string[] = []
    await deployment.worker({
      // It enqueues in its own transactions.
      postgres: database.urlOf('app'),
      handlers: [
        flaky.handle((job, ctx) => {
          ran.push(job.payload)
          return ctx.complete(async tx => {
            if (job.payload === '0' && job.attempt === 1) throw new Error('rolled back')
            // Its own workflow: in the same transaction, so nobody waits for anybody.
            if (job.payload === '0') await producer.enqueue(flaky, '2', { workflow: 'w', tx })
          })
        }),
      ],
    })
    await producer.enqueueMany(flaky, ['0', '1'], { workflow: 'w' })
    await eventually('all have run', async () => ran.length === 4 && (await workflows()).length === 0)
    expect(ran).toEqual(['0', '0', '1', '2'])
  })

  it('[W2] [X1] whose head ends while an open transaction has enqueued into it holds up no other job', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const begun = gate()
    const mayEnd = gate()
    await deployment.worker({
      handlers: [
        step.handle(async job => {
          begun.open()
          if (job.payload !== 'later') await mayEnd.opened
          return job.payload
        }),
      ],
    })
    const head = await producer.enqueue(step, 'head', { workflow: 'w' })
    const plain = await producer.enqueueMany(step, numbers(5))
    await begun.opened
    const tx = await database.connect()
    await tx.query('begin')
    const next = await producer.enqueue(step, 'next', { workflow: 'w', tx })
    mayEnd.open()
    for (const ref of plain) expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    expect(await producer.waitFor(await producer.enqueue(step, 'later'))).toMatchObject({
      state: 'succeeded',
    })
    expect(await producer.get(head)).toMatchObject({ state: 'running' })
    await tx.query('commit')
    for (const ref of [head, next])
      expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', attempts: 1 })
  })

  it('[W2] 300 of them keep their order at full speed on 2 workers', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const ran = new Map<string, string[]>()
    const done = counter()
    const handler = step.handle(job => {
      const [key = '', n = ''] = job.payload.split(' ')
      ran.set(key, [...(ran.get(key) ?? []), n])
      done.add()
      return ''
    })
    for (let n = 0; n < 2; n++) await deployment.worker({ handlers: [handler], maxConcurrentTasks: 100 })
    const made = []
    for (const n of numbers(10))
      for (const key of numbers(300)) made.push(producer.enqueue(step, `${key} ${n}`, { workflow: key }))
    await Promise.all(made)
    await done.reached(3000)
    await eventually('all have ended', async () => (await workflows()).length === 0)
    expect([...ran.values()]).toEqual(Array(300).fill(numbers(10)))
  })

  it('[W2] halts it on a real worker, which goes on after the resume', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const ran: string[] = []
    await deployment.worker({
      handlers: [
        step.handle(job => {
          ran.push(job.payload)
          if (job.payload === '1') throw new Error('no')
          return ''
        }),
      ],
    })
    const refs = await producer.enqueueMany(step, numbers(3), { workflow: 'w', onWorkflowFailure: 'halt' })
    expect((await producer.waitFor(refs[1]?.id ?? '')).state).toBe('failed')
    expect(await producer.get(refs[2]?.id ?? '')).toMatchObject({ state: 'waiting' })
    expect(await producer.resumeWorkflow('w')).toBe('resumed')
    await producer.waitFor(refs[2]?.id ?? '')
    expect(ran).toEqual(numbers(3))
  })

  it('[W2] [S4] is halted behind a job that fails as it is added: what was added before that one runs', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const group = producer.group()
    const failed = group.add(step, 'never')
    group.add(step, 'other', { delay: '1h' }) // so that the group is open
    await group.submit()
    await producer.cancel(failed)

    const more = producer.addToGroup(group.id)
    const halting = { workflow: 'w', onWorkflowFailure: 'halt' } as const
    const before = more.add(step, 'before', { workflow: 'w' })
    const doomed = more.add(step, 'doomed', { ...halting, after: failed })
    const behind = more.add(step, 'behind', { workflow: 'w' })
    await more.submit()
    expect(await producer.get(doomed)).toMatchObject({ state: 'dependency_failed' })

    await deployment.worker({ handlers: [step.handle(job => job.payload)] })
    expect((await producer.waitFor(before)).state).toBe('succeeded')
    expect(await producer.get(behind)).toMatchObject({ state: 'waiting' })
    expect(await producer.resumeWorkflow('w')).toBe('resumed')
    expect((await producer.waitFor(behind)).state).toBe('succeeded')
    await producer.cancelGroup(group.id)
  })

  it('[W2] [S10] is not done twice when the reply to its commit is lost, and keeps the order', async () => {
    proxy = await startProxy(database.urlOf('producer'))
    const producer = deployment.producer({ postgres: proxy.url, tasks: [step] })
    await producer.enqueue(step, '0', { workflow: 'w' })
    const ran: string[] = []
    const done = counter()
    await deployment.worker({
      handlers: [
        step.handle(job => {
          ran.push(job.payload)
          done.add()
          return ''
        }),
      ],
    })
    await done.reached(1)
    const lost = proxy.loseReplyTo('enqueue_jobs')
    const first = producer.enqueue(step, '1', { workflow: 'w' })
    const second = producer.enqueue(step, '2', { workflow: 'w' })
    await lost
    const third = producer.enqueue(step, '3', { workflow: 'w' })
    expect(await Promise.all([first, second, third])).toMatchObject(Array(3).fill({ isNew: true }))
    const lostAgain = proxy.loseReplyTo('enqueue_jobs')
    const many = producer.enqueueMany(step, ['4', '5'], { workflow: 'w' })
    await lostAgain
    await many
    await done.reached(6)
    await eventually('all have ended', async () => (await workflows()).length === 0)
    expect(ran).toEqual(numbers(6))
  })
})
