/** What a person with psql sees. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<string>({ name: 'step', retry: { maxAttempts: 1 } })

const reasonOf = async (job: { id: string }) =>
  (await database.rows<{ reason: string }>('select reason from longshore.blocked where id = $1', [job.id]))[0]
    ?.reason
const statusOf = async (job: { id: string }) =>
  (await database.rows('select * from longshore.job_status where id = $1', [job.id]))[0]
const groupOf = async (group: { id: string }) =>
  (await database.rows('select * from longshore.group_status where id = $1', [group.id]))[0]

describe('views', () => {
  it('[X6] use no function of the schema, which migrate drops and makes anew', async () => {
    expect(
      await database.rows(`
        select r.ev_class::regclass as view, p.oid::regprocedure as function
        from pg_rewrite r
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_proc'::regclass
        join pg_proc p on p.oid = d.refobjid
        where p.pronamespace = 'longshore'::regnamespace`),
    ).toEqual([])
  })

  it('[S16] job_status shows a job from the queue to the history', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const job = await producer.enqueue(step, 'a', { priority: 7, workflow: 'album' })
    const next = await producer.enqueue(step, 'b', { workflow: 'album', runAt: new Date('2100-01-01') })
    expect(await statusOf(job)).toMatchObject({
      task: 'step',
      queue: 'default',
      state: 'ready',
      workflow: 'album',
      priority: 7,
      attempts: 0,
      max_attempts: 1,
      worker_id: null,
      is_cancelled: false,
    })
    expect(await statusOf(next)).toMatchObject({ state: 'waiting', run_at: new Date('2100-01-01') })
    const worker = await workByHand(database, ['step'])
    const [claimed] = await worker.claim(1)
    if (!claimed) throw new Error('not claimed')
    await producer.cancel(job)
    expect(await statusOf(job)).toMatchObject({ state: 'running', worker_id: worker.id, is_cancelled: true })
    await worker.settle([settling(claimed)])
    expect(await statusOf(job)).toMatchObject({ state: 'cancelled', workflow: 'album', priority: 7 })
    expect((await statusOf(job))?.['finished_at']).toBeInstanceOf(Date)
  })

  it('[S5] group_status counts the jobs of a group, and goes from queued to its end', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const worker = await workByHand(database, ['step'])
    const group = producer.group({ name: 'release' })
    const first = group.add(step, 'a')
    group.add(step, 'b', { after: first })
    group.add(step, 'c', { delay: '1h' })
    await group.submit()
    expect(await groupOf(group)).toMatchObject({
      name: 'release',
      state: 'queued',
      waiting: '1',
      scheduled: '1',
      ready: '1',
      running: '0',
      succeeded: '0',
    })
    const [claimed] = await worker.claim(1)
    if (!claimed) throw new Error('not claimed')
    expect(await groupOf(group)).toMatchObject({ state: 'dispatching', ready: '0', running: '1' })
    const error = { code: 'HANDLER_FAILED', message: 'no' }
    await worker.settleOthers([{ id: claimed.id, token: claimed.lease_token, outcome: 'failed', error }])
    expect(await groupOf(group)).toMatchObject({ state: 'dispatching', failed: '1', dependency_failed: '1' })
    await producer.cancelGroup(group)
    expect(await groupOf(group)).toMatchObject({
      state: 'cancelled',
      scheduled: '0',
      failed: '1',
      dependency_failed: '1',
      cancelled: '1',
    })
  })

  it('[S16] blocked tells why a waiting or scheduled job has not started', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const worker = await workByHand(database, ['step'])
    const group = producer.group()
    const parents = [group.add(step, 'a'), group.add(step, 'b')]
    const child = group.add(step, 'c', { after: parents })
    await group.submit()
    const later = await producer.enqueue(step, 'd', { runAt: new Date('2100-01-01') })
    expect(await reasonOf(child)).toBe(`waits for 2 of 2 jobs, among them ${parents[0]?.id}`)
    expect(await reasonOf(later)).toMatch(/^is due at 2\d{3}-/)
    // What may start at any moment is not blocked.
    expect(await reasonOf(parents[0] as { id: string })).toBeUndefined()

    const halting = { workflow: 'w', onWorkflowFailure: 'halt', priority: 9 } as const
    const head = await producer.enqueue(step, 'e', halting)
    const tail = await producer.enqueue(step, 'f', halting)
    expect(await reasonOf(tail)).toBe(`waits for its turn in workflow w, which job ${head.id} has`)
    const [claimed] = await worker.claim(1)
    if (claimed?.id !== head.id) throw new Error('another was claimed')
    const error = { code: 'HANDLER_FAILED', message: 'no' }
    await worker.settleOthers([{ id: head.id, token: claimed.lease_token, outcome: 'failed', error }])
    expect(await reasonOf(tail)).toBe(`its workflow w was halted by the failure of job ${head.id}`)
  })

  it('[S16] blocked tells what keeps a ready job: no worker that fits, or a limit', async () => {
    const few = defineTask<string>({ name: 'few', concurrency: 2, concurrencyPerKey: 1 })
    const producer = deployment.producer({ tasks: [step, few] })
    const job = await producer.enqueue(step, 'a')
    expect(await reasonOf(job)).toBe('no live worker serves task step')
    const worker = await workByHand(database, ['step', 'few'], ['default'], { gpu: 't4' })
    expect(await reasonOf(job)).toBeUndefined()
    for (const [options, reason] of [
      [{ queue: 'night' }, 'no live worker of task step serves queue night'],
      [{ tag: 'arm' }, 'no live worker of task step in queue default offers tag arm'],
      [
        { constraints: { gpu: 'a100' } },
        'no live worker of task step in queue default with tag default has gpu=a100',
      ],
    ] as const) {
      expect(await reasonOf(await producer.enqueue(step, 'b', options))).toBe(reason)
    }
    await producer.enqueue(few, 'c', { concurrencyKey: 'ada', priority: 9 })
    const second = await producer.enqueue(few, 'd', { concurrencyKey: 'ada', priority: 8 })
    await worker.claim(1)
    expect(await reasonOf(second)).toBe('all 1 slots of task few for key ada are taken')
    await producer.enqueue(few, 'e', { priority: 9 })
    await worker.claim(1)
    expect(await reasonOf(second)).toBe('all 2 slots of task few are taken')
    // A worker that is gone serves nobody.
    await database.rows('update longshore.workers set expires_at = now() where id = $1', [worker.id])
    expect(await reasonOf(job)).toBe('no live worker serves task step')
    await database.rows("update longshore.workers set expires_at = now() + interval '1 minute'")
  })
})
