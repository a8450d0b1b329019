/** Owns what is explained: how the tables are filled, and which call is looked at. */

import { registerTask, registerWorker, storeJobs } from '../jobs/stored-jobs.ts'
import type { Sizes } from '../measure/sizes.ts'
import type { Database } from '../stores/database.ts'

export interface PlanCase {
  /** Names the file. */
  readonly id: string
  fill(database: Database, sizes: Sizes): Promise<Explained>
}

export interface Explained {
  /** What is in the tables. */
  about: string
  /** Runs before the call, in its transaction, unexplained. */
  prepare?: string
  call: string
}

const BATCH = 200
const TASKS = 10
const LIMIT = 10
const count = (jobs: number) => jobs.toLocaleString('en-US')

const behindUnmatchable = (which: 0 | 1): PlanCase => ({
  id: ['claim-unmatchable-head', 'claim-unmatchable-head-longer'][which] as string,
  async fill(database, sizes) {
    const ahead = sizes.ahead[which]
    await registerTask(database, 'noop')
    const id = await registerWorker(database, ['noop'])
    await storeJobs(database, [{ task: 'noop', constraintTag: 'c:gpu=h100' }], ahead)
    await storeJobs(database, [{ task: 'noop' }], 1000)
    return {
      about: `Claim: ${count(ahead)} ready jobs that the worker cannot run stand before 1,000 that it can.`,
      call: `select * from longshore.claim(${id}, ${BATCH})`,
    }
  },
})

/** `limited` of ten tasks have a limit of 10. */
const pending = (id: string, limited: number, isSettling = false): PlanCase => ({
  id,
  async fill(database, sizes) {
    const tasks = Array.from({ length: TASKS }, (_, n) => `task-${n}`)
    for (const [n, task] of tasks.entries()) {
      await registerTask(database, task, n < limited ? { concurrency: LIMIT } : {})
    }
    const worker = await registerWorker(database, tasks)
    await storeJobs(
      database,
      tasks.map(task => ({ task })),
      sizes.backlog / TASKS,
    )
    const claim = `select * from longshore.claim(${worker}, ${BATCH})`
    const about = `${count(sizes.backlog)} ready jobs of ${TASKS} tasks, ${limited} of them with a limit of ${LIMIT}; one worker serves all.`
    if (!isSettling) return { about: `Claim: ${about}`, call: claim }
    return {
      about: `Settle, with slots: ${about}`,
      prepare: `create temp table claimed on commit drop as ${claim}`,
      call: `select s.* from (
    select array_agg(j.id order by j.id) as ids, array_agg(j.lease_token order by j.id) as tokens
    from claimed c join longshore.jobs j on j.id = any (string_to_array(c.ids, ',')::uuid[])
  ) r, longshore.settle_and_claim(${worker}, r.ids, r.tokens, null, null, 0) s`,
    }
  },
})

export const planCases: readonly PlanCase[] = [
  behindUnmatchable(0),
  behindUnmatchable(1),
  pending('concurrency-baseline', 0),
  pending('concurrency-single-task', 1),
  pending('concurrency-all-tasks', TASKS),
  pending('settle-with-slots', TASKS, true),
]
