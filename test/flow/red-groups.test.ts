/** The red side of groups and workflows where `group-races`, `workflow-races` and `model/red` leave a guard out. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { byRule, type Guard, underWay, useGuards } from '../support/guards.ts'
import { waitsForLock } from '../support/locks.ts'
import { type Graph, submitGraph } from '../support/submit-graph.ts'
import { pauseAt } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin, barrier } = useGuards(database, deployment)
const step = defineTask<string, string>({ name: 'step' })
const BARRIER = 85
const SHAPES =
  '[{"queue": "default", "task": "step", "tag": "default", "constraintTag": "c:", "maxAttempts": 1, "priority": 0}]'

const running = async <Name extends string>(graph: Graph<NoInfer<Name>> & Record<Name, unknown>) => {
  const producer = deployment.producer()
  const { group, jobs } = await submitGraph<Name>(producer, step, graph)
  const worker = await workByHand(database, ['step'])
  const claims = await worker.claim(100)
  const runOf = (name: Name) => claims.find(({ payload }) => payload === name) as Claimed
  return { producer, group, jobs, worker, runOf }
}
const childrenOf = (id: string) =>
  database.rows<{ id: string }>('select id from longshore.jobs where group_id = $1', [id])

const cancels: Guard[] = [
  {
    rule: 'a cancel of a group holds its jobs: a claim that comes in between does not get away',
    given: [
      {
        name: 'cancel_any_group',
        point: 'running-marked',
        insertion: `set local lock_timeout = '20s'; ${pauseAt(BARRIER)}`,
      },
    ],
    without: { name: 'cancel_any_group', guard: 'job-locks' },
    happens: async () => {
      const producer = deployment.producer()
      const { group } = await submitGraph(producer, step, { only: [] })
      const worker = await workByHand(database, ['step'])
      const { open } = await barrier(BARRIER)
      const client = await begin()
      const cancelled = underWay(client.query('select longshore.cancel_group($1)', [group.id]))
      await waitsForLock(database, client)
      await worker.claim(1)
      await open()
      await cancelled
      await client.query('commit')
      const left = await database.rows('select from longshore.jobs where not is_cancelled')
      if (left.length > 0) return 'a job of a cancelled group runs, and nobody tells it'
    },
    tells: /nobody tells it/,
  },
  {
    rule: 'nothing is added to a group while it is cancelled',
    given: [
      { name: 'cancel_any_group', point: 'group-held', insertion: pauseAt(BARRIER) },
      { name: 'cancel_any_group', setting: 'lock_timeout', value: '20s' },
    ],
    without: { name: 'cancel_any_group', guard: 'group-lock' },
    happens: async () => {
      const { producer, group } = await running({ first: [] })
      const { open } = await barrier(BARRIER)
      const [cancelling, adding] = [await begin(), await begin()]
      const cancelled = underWay(cancelling.query('select longshore.cancel_group($1)', [group.id]))
      await waitsForLock(database, cancelling)
      const more = producer.addToGroup(group)
      more.add(step, 'late')
      const added = more.submit({ tx: adding }).then(
        () => true,
        () => false,
      )
      const isAdded = await Promise.race([added, waitsForLock(database, adding).then(() => false)])
      await open()
      await cancelled
      await cancelling.query('commit')
      if (isAdded) await adding.query('commit')
      await added
      if ((await childrenOf(group.id)).length > 1) return 'a job was added to a cancelled group'
    },
    tells: /added to a cancelled group/,
  },
  {
    rule: 'whoever adds to a group holds it: it does not end meanwhile',
    without: { name: 'add_to_group', guard: 'group-lock' },
    happens: async () => {
      const { producer, group, worker, runOf } = await running({ first: [] })
      const adding = await begin()
      const more = producer.addToGroup(group)
      more.add(step, 'late')
      await more.submit({ tx: adding })
      await worker.settle([settling(runOf('first'))])
      await database.rows('select longshore.close_groups(array[$1]::uuid[])', [group.id])
      await adding.query('commit')
    },
    tells: /^7: .* has ended as succeeded, and it is ready/m,
  },
  {
    rule: 'nothing is added to a group that has ended',
    without: { name: 'add_to_group', guard: 'not-ended' },
    happens: async () => {
      const { producer, group, worker, runOf } = await running({ first: [] })
      await worker.settle([settling(runOf('first'))])
      await database.rows('select longshore.close_groups(array[$1]::uuid[])', [group.id])
      const more = producer.addToGroup(group)
      more.add(step, 'late')
      await more.submit().catch((error: { code: string }) => expect(error.code).toMatch(/GROUP/))
    },
    tells: /^7: .* has ended as succeeded, and it is ready/m,
  },
  {
    rule: 'a job runs after jobs of its own group only',
    without: [{ name: 'add_to_group', guard: 'own-group' }],
    happens: async () => {
      const { jobs } = await running({ first: [] })
      const producer = deployment.producer()
      const { group } = await submitGraph(producer, step, { other: [] })
      await database
        .rows(
          `select longshore.add_to_group($1, null, false, false,
             $3, array[longshore.new_id()], array[1], '"late"', null, null, array[1], $2, '{fail}', $2)`,
          [group.id, [jobs.first.id], SHAPES],
        )
        .catch((error: { code: string }) => expect(error.code).toBe('LS004'))
    },
    tells: /^7: .* it runs after job/m,
  },
  {
    rule: 'jobs that are submitted together run after jobs of their own group only',
    without: { name: 'add_to_groups', guard: 'own-group' },
    happens: () =>
      database
        .rows(
          `select longshore.add_to_groups(array[gen_random_uuid(), gen_random_uuid()], array[null, null], '{1,2}', $1,
             array[longshore.new_id(), gen_random_uuid()], '{1,1}', E'"one"\n"other"', '{2}', '{1}', '{fail}')`,
          [SHAPES],
        )
        .catch((error: { code: string }) => expect(error.code).toBe('LS004')),
    tells: /^6: .* waits for 1 things, of which 0 are open/m,
  },
  {
    rule: 'a submission that is tried again knows its own group',
    without: { name: 'add_to_group', guard: 'own-try' },
    happens: async () => {
      const { group, jobs } = await running({ first: [] })
      const [row] = await database.rows<{ answer: string }>(
        `select longshore.add_to_group($1, null, true, true, $2, $3, '{1}', '"first"', null, null, '{}', '{}', '{}', '{}') as answer`,
        [group.id, SHAPES, [jobs.first.id]],
      )
      if (row?.answer !== 'again') return 'it takes its own group for that of somebody else'
    },
    tells: /for that of somebody else/,
  },
]

describe('a group', () => {
  it.each(byRule(cancels))('[S13] [S5] %s', (_, guard) => check(guard))
})

const passes: Guard[] = [
  {
    rule: 'an end that reads an older snapshot is refused: it would not see who waits',
    without: { name: 'pass_on', guard: 'read-committed' },
    happens: async () => {
      const { producer, group, jobs, worker, runOf } = await running({ first: [] })
      const settles = await begin()
      await settles.query('set transaction isolation level repeatable read')
      await settles.query('select from longshore.jobs')
      const more = producer.addToGroup(group)
      more.add(step, 'late', { after: jobs.first })
      await more.submit()
      await worker
        .settle([settling(runOf('first'))], settles)
        .then(() => settles.query('commit'))
        .catch((error: { code: string }) => expect(error.code).toBe('25000'))
    },
    tells: /^6: .* of which 0 are open/m,
  },
  {
    rule: 'whom a failure dooms ends with it',
    without: { name: 'pass_on', guard: 'doom-children' },
    happens: async () => {
      const { worker, runOf } = await running({ first: [], second: ['first'] })
      await worker.settleOthers([{ ...settling(runOf('first')), outcome: 'failed' }])
    },
    tells: /^7: .* it is waiting, although job/m,
  },
  {
    rule: 'a failure dooms those behind, and theirs',
    without: { name: 'pass_on', guard: 'doom-further' },
    happens: async () => {
      const { worker, runOf } = await running({ first: [], second: ['first'], third: ['second'] })
      await worker.settleOthers([{ ...settling(runOf('first')), outcome: 'failed' }])
    },
    tells: /^[67]: .* it is waiting/m,
  },
  {
    rule: 'an edge that says run lets its child run',
    without: [
      { name: 'pass_on', guard: 'run-policy' },
      { name: 'doom_of', guard: 'run-policy', replacement: 'true' },
    ],
    happens: async () => {
      const { worker, runOf } = await running({ first: [], second: [['first', 'run']] })
      await worker.settleOthers([{ ...settling(runOf('first')), outcome: 'failed' }])
    },
    tells: /^7: .* every job that it was to run after has succeeded/m,
  },
  {
    rule: 'the end of a parent is passed on with it',
    without: { name: 'settle', guard: 'pass-on' },
    happens: async () => {
      const { worker, runOf } = await running({ first: [], second: ['first'] })
      await worker.settle([settling(runOf('first'))])
    },
    tells: /^6: .* of which 0 are open/m,
  },
  {
    rule: 'the end of a parent in a transaction is passed on with it',
    without: { name: 'complete', guard: 'pass-on' },
    happens: async () => {
      const { worker, runOf } = await running({ first: [], second: ['first'] })
      const { id, lease_token: token } = runOf('first')
      const tx = await begin()
      await tx.query("select set_config('longshore_run.lease', $1, true)", [token])
      await tx.query('select longshore.complete($1, $2, $3, null)', [worker.id, id, token])
      await tx.query('commit')
    },
    tells: /^6: .* of which 0 are open/m,
  },
]

describe('what a job waits for', () => {
  it.each(byRule(passes))('[S3] [S4] %s', (_, guard) => check(guard))
})

const turns: Guard[] = [
  {
    rule: 'one job of a workflow has the turn',
    without: { name: 'insert_linked', guard: 'one-turn' },
    happens: async () => {
      const producer = deployment.producer()
      await producer.enqueue(step, 'a', { workflow: 'w' })
      await producer.enqueue(step, 'b', { workflow: 'w' })
    },
    tells: /jobs_one_turn/,
  },
  {
    rule: 'the turn passes to the lowest number that is left',
    without: { name: 'pass_on', guard: 'lowest-first', replacement: 'order by j.workflow_seq desc' },
    happens: async () => {
      const producer = deployment.producer()
      await producer.enqueueMany(step, ['a', 'b', 'c'], { workflow: 'w' })
      const worker = await workByHand(database, ['step'])
      const [run] = await worker.claim(1)
      await worker.settle([settling(run as Claimed)])
      await worker.claim(1)
    },
    tells: /^9: .* it has the turn, and number 1 stands before it/m,
  },
  {
    rule: 'a settle that ends the head passes the turn',
    without: { name: 'pass_on', guard: 'pass-turn', replacement: 'false' },
    happens: async () => {
      const producer = deployment.producer()
      await producer.enqueueMany(step, ['a', 'b'], { workflow: 'w' })
      const worker = await workByHand(database, ['step'])
      const [run] = await worker.claim(1)
      await worker.settle([settling(run as Claimed)])
    },
    tells: /^9: .* no turn, and is the first/m,
  },
]

describe('a workflow', () => {
  it.each(byRule(turns))('[W2] %s', (_, guard) => check(guard))
})
