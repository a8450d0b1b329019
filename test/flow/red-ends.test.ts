/** The red side of how jobs come and go: enqueue, change, cancel, due and end, each without one of its guards. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { byRule, type Guard, underWay, useGuards } from '../support/guards.ts'
import { waitsForLock } from '../support/locks.ts'
import { pauseAt } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin, barrier } = useGuards(database, deployment)
const task = defineTask({ name: 'task', retry: { maxAttempts: 1 } })
const limited = defineTask({ name: 'limited', concurrency: 5 })
const BARRIER = 83

const running = async (jobs = 1) => {
  const producer = deployment.producer({ tasks: [limited] })
  await producer.enqueueMany(
    limited,
    Array.from({ length: jobs }, (_, n) => n),
  )
  const worker = await workByHand(database, ['limited'])
  const claims: Claimed[] = []
  for (let calls = 0; calls < jobs; calls++) claims.push(...(await worker.claim(1)))
  return { producer, worker, claims, first: claims[0] as Claimed }
}
/** A group of two, the second of which runs after the first; the first runs. */
const pair = async () => {
  const producer = deployment.producer()
  const group = producer.group()
  const parent = group.add(task, 'parent')
  group.add(task, 'child', { after: parent })
  await group.submit()
  const worker = await workByHand(database, ['task'])
  const [first] = await worker.claim(1)
  return { producer, group, worker, first: first as Claimed }
}

const history: Guard[] = [
  {
    rule: 'settle moves a job to the history in one statement',
    without: { name: 'move_to_history', guard: 'to-history' },
    happens: async () => {
      const { worker, first } = await running()
      await worker.settle([settling(first)])
    },
    tells: /^2: .* without a trace/m,
  },
  {
    rule: 'settle does so where not all is as it should be',
    without: { name: 'move_to_history', guard: 'to-history' },
    happens: async () => {
      const { worker, first } = await running()
      await worker.settle([settling(first), { id: '00000000-0000-7000-8000-000000000000', token: '1' }])
    },
    tells: /^2: .* without a trace/m,
  },
  {
    rule: 'a job that fails goes to the history',
    without: { name: 'move_to_history', guard: 'to-history' },
    happens: async () => {
      const { worker, first } = await running()
      await worker.settleOthers([{ ...settling(first), outcome: 'failed' }])
    },
    tells: /^2: .* without a trace/m,
  },
  {
    rule: 'a job that has ended is not among the unfinished',
    without: {
      name: 'move_to_history',
      guard: 'not-left',
      replacement: 'select j.* from longshore.jobs j where j.id = any (p_ids)',
    },
    happens: async () => {
      const { worker, first } = await running()
      await worker.settleOthers([{ ...settling(first), outcome: 'failed' }])
    },
    tells: /^2: .* it is running, and has ended as failed/m,
  },
  {
    rule: 'a job that can never run goes to the history',
    without: { name: 'move_to_history', guard: 'to-history' },
    happens: async () => {
      const { worker, first } = await pair()
      await worker.settleOthers([{ ...settling(first), outcome: 'failed' }])
    },
    tells: /^2: .* without a trace/m,
  },
  {
    rule: 'the jobs of a cancelled group go to the history',
    without: { name: 'move_to_history', guard: 'to-history' },
    happens: async () => {
      const { producer, group } = await pair()
      await producer.cancelGroup(group)
    },
    tells: /^2: .* without a trace/m,
  },
  {
    rule: 'a job has no more attempts than it may',
    without: { name: 'settle_unsuccessful', guard: 'max-attempts' },
    happens: async () => {
      const producer = deployment.producer()
      await producer.enqueue(task, 1)
      const worker = await workByHand(database, ['task'])
      const [run] = await worker.claim(1)
      await worker.settleOthers([{ ...settling(run as Claimed), outcome: 'retry', delayMs: 0 }])
      await worker.claim(1)
    },
    tells: /attempts_in_bounds/,
  },
]

describe('the end of a job', () => {
  it.each(byRule(history))('[S14] %s', (_, guard) => check(guard))
})

const cancels: Guard[] = [
  {
    rule: 'a run that was cancelled meanwhile does not succeed, where not all is as it should be',
    without: { name: 'move_to_history', guard: 'cancelled-ends', replacement: 'false' },
    happens: async () => {
      const { producer, worker, first } = await running()
      await producer.cancel(first.id)
      await worker.settle([settling(first)])
    },
    tells: /^8: .* ended as succeeded/m,
  },
  {
    rule: 'a run that was cancelled meanwhile is not tried again',
    without: { name: 'settle_unsuccessful', guard: 'cancelled-ends', replacement: 'false' },
    happens: async () => {
      const { producer, worker, first } = await running()
      await producer.cancel(first.id)
      await worker.settleOthers([{ ...settling(first), outcome: 'retry', delayMs: 0 }])
    },
    tells: /only_running_is_being_cancelled/,
  },
  {
    rule: 'a cancel does not take a running job from its worker',
    without: { name: 'cancel', guard: 'leave-running', replacement: 'false' },
    happens: async () => {
      const { producer, first } = await running()
      await producer.cancel(first.id)
    },
    tells: /^5: .* used 1, held by 0 running jobs/m,
  },
  {
    rule: 'a cancel holds the job: no claim comes in between',
    given: [
      { name: 'cancel', point: 'job-held', insertion: pauseAt(BARRIER) },
      { name: 'cancel', setting: 'lock_timeout', value: '20s' },
    ],
    without: [
      // A pause forgets whether there was a job.
      { name: 'cancel', guard: 'job-lock' },
    ],
    happens: async () => {
      const producer = deployment.producer({ tasks: [limited] })
      const job = await producer.enqueue(limited, 1)
      const worker = await workByHand(database, ['limited'])
      const { open } = await barrier(BARRIER)
      const client = await begin()
      const cancelled = underWay(client.query('select * from longshore.cancel(array[$1::uuid])', [job.id]))
      await waitsForLock(database, client)
      await worker.claim(1)
      await open()
      await cancelled
      await client.query('commit')
    },
    tells: /has changed while it was about to end as cancelled/,
  },
]

describe('a cancel', () => {
  it.each(byRule(cancels))('[S13] %s', (_, guard) => check(guard))
})

const changes: Guard[] = [
  {
    rule: 'a change comes too late for a job that runs',
    without: { name: 'change', guard: 'not-running' },
    happens: async () => {
      const { producer, first } = await running()
      await producer.change(first.id, { priority: 5 })
    },
    tells: /violates check constraint "only_running_holds_slots"/,
  },
  {
    rule: 'a change holds the job: no claim comes in between',
    given: [
      { name: 'change', point: 'job-held', insertion: pauseAt(BARRIER) },
      { name: 'change', setting: 'lock_timeout', value: '20s' },
    ],
    without: { name: 'change', guard: 'job-lock' },
    happens: async () => {
      const producer = deployment.producer()
      const job = await producer.enqueue(task, 1)
      const worker = await workByHand(database, ['task'])
      const { open } = await barrier(BARRIER)
      const client = await begin()
      const changed = underWay(client.query('select longshore.change($1, \'{"priority": 5}\')', [job.id]))
      await waitsForLock(database, client)
      await worker.claim(1)
      await open()
      await changed
      await client.query('commit')
    },
    tells: /running_has/,
  },
  {
    rule: 'nothing is made ready that is not scheduled',
    without: { name: 'promote_due', guard: 'only-scheduled', replacement: 'true' },
    happens: async () => {
      await running()
      await database.rows('select longshore.promote_due(10)')
    },
    tells: /violates check constraint "only_running_holds_slots"/,
  },
  {
    rule: 'nothing is made ready before it is due',
    without: { name: 'promote_due', guard: 'only-due', replacement: 'true' },
    happens: async () => {
      await deployment.producer().enqueue(task, 1, { delay: '1h' })
      await database.rows('select longshore.promote_due(10)')
      const worker = await workByHand(database, ['task'])
      if ((await worker.claim(1)).length > 0) return 'a job started an hour early'
    },
    tells: /an hour early/,
  },
]

describe('a job that has not started', () => {
  it.each(byRule(changes))('[D9] %s', (_, guard) => check(guard))
})

const ID = '01990000-0000-7000-8000-000000000001'
const OTHER = '01990000-0000-7000-8000-000000000002'
const ended = async (workflow?: string) => {
  const producer = deployment.producer()
  const options = workflow === undefined ? { id: ID } : { id: ID, workflow }
  await producer.enqueue(task, 1, options)
  const worker = await workByHand(database, ['task'])
  const [run] = await worker.claim(1)
  return { producer, worker, run: run as Claimed, again: () => producer.enqueue(task, 1, options) }
}

const again: Guard[] = [
  {
    rule: 'an enqueue that is tried again leaves a job alone that is there',
    without: { name: 'insert_jobs', guard: 'known-id' },
    happens: async () => {
      const { again } = await ended()
      await again()
    },
    tells: /duplicate key/,
  },
  {
    rule: 'an enqueue that is tried again does not run a finished job once more',
    without: [
      { name: 'insert_jobs', guard: 'not-ended' },
      { name: 'drop_ended', guard: 'look-again' },
    ],
    happens: async () => {
      const { worker, run, again } = await ended()
      await worker.settle([settling(run)])
      await again()
    },
    tells: /^2: .* it is ready, and has ended as succeeded/m,
  },
  {
    rule: 'an enqueue that is tried again looks once more when it has waited for the end of the job',
    without: { name: 'drop_ended', guard: 'look-again' },
    happens: async () => {
      const { worker, run } = await ended()
      const [settling_, enqueueing] = [await begin(), await begin()]
      await worker.settle([settling(run)], settling_)
      const enqueued = underWay(enqueueing.query(`select longshore.enqueue('task', '1', '{"id": "${ID}"}')`))
      await waitsForLock(database, enqueueing)
      await settling_.query('commit')
      await enqueued
      await enqueueing.query('commit')
    },
    tells: /^2: .* it is ready, and has ended as succeeded/m,
  },
  {
    rule: 'an enqueue that reads an older snapshot is refused when the job has ended meanwhile',
    without: { name: 'insert_jobs', guard: 'job-locks' },
    happens: async () => {
      const { worker, run } = await ended()
      const enqueueing = await begin()
      await enqueueing.query('set transaction isolation level repeatable read')
      await enqueueing.query('select from longshore.jobs')
      await worker.settle([settling(run)])
      await enqueueing
        .query(`select longshore.enqueue('task', '1', '{"id": "${ID}"}')`)
        .then(() => enqueueing.query('commit'))
        .catch((error: { code: string }) => expect(error.code).toBe('40001'))
    },
    tells: /^2: .* it is ready, and has ended as succeeded/m,
  },
  {
    rule: 'an enqueue into a workflow that is tried again does not run a finished job once more',
    without: [
      { name: 'insert_linked', guard: 'not-ended' },
      { name: 'drop_ended', guard: 'look-again' },
    ],
    happens: async () => {
      const { worker, run, again } = await ended('w')
      await worker.settle([settling(run)])
      await again()
    },
    tells: /^2: .* it is ready, and has ended as succeeded/m,
  },
  {
    rule: 'of jobs that are enqueued again only the new ones are said to be made',
    without: { name: 'insert_jobs', guard: 'only-new', replacement: 'p_ids' },
    happens: async () => {
      const { worker, run } = await ended()
      const [row] = await database.rows<{ made: string[] }>(
        `select made from longshore.enqueue_jobs(
           '[{"queue": "default", "task": "task", "tag": "default", "constraintTag": "c:", "maxAttempts": 1, "priority": 0}]',
           $1, null, E'1\\n2', true)`,
        [[ID, OTHER]],
      )
      await worker.settle([settling(run)])
      if (row?.made.includes(ID)) return 'a job is said to be new that was there'
    },
    tells: /said to be new/,
  },
]

describe('an enqueue with a known id', () => {
  it.each(byRule(again))('[S10] %s', (_, guard) => check(guard))
})
