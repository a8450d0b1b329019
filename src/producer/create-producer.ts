/**
 * The producer: what an application embeds to enqueue jobs and to read them back. Needs Postgres only. Its verbs are in files of
 * their own; this one puts their parts together.
 */
import { checkOptions, readGiven } from '../job/check-options.ts'
import { toChange } from '../job/enqueue-options.ts'
import { LongshoreError } from '../job/errors.ts'
import type { FinishedJob, Job, JobRef } from '../job/job.ts'
import { groupIdOf, jobIdOf, newJobId, toGroupId } from '../job/job-id.ts'
import { oneTaskAName } from '../job/one-task-a-name.ts'
import { shown } from '../job/shown.ts'
import { checkLabel } from '../job/task.ts'
import { cancelJobs } from '../postgres/cancel-jobs.ts'
import { changeJob } from '../postgres/change-job.ts'
import { openPool } from '../postgres/connect.ts'
import { explainJob } from '../postgres/explain-job.ts'
import { cancelGroup, readGroups, resumeWorkflow } from '../postgres/groups.ts'
import { tellOfPostgres } from '../postgres/postgres-outage.ts'
import { readJobs } from '../postgres/read-jobs.ts'
import { readProgress } from '../postgres/read-logs.ts'
import { patient } from '../postgres/unavailable.ts'
import { withOutages } from '../runtime/outage.ts'
import { createPostgresCalls } from './call-postgres.ts'
import { createEnqueue } from './enqueue.ts'
import { PAUSES } from './enqueue-batch.ts'
import { createEnqueueMany } from './enqueue-many.ts'
import { createLogFollower, readLogPage } from './follow-logs.ts'
import { createGroupBuilder } from './group-builder.ts'
import { createJobHints } from './hint-jobs.ts'
import { createJobInserts } from './insert-jobs.ts'
import { createJobShapes } from './job-shapes.ts'
import { createKnownLanes } from './known-lanes.ts'
import type { Producer } from './producer.ts'
import { type ProducerOptions, readProducerOptions } from './producer-options.ts'
import type { ProducerParts } from './producer-parts.ts'
import { createReadiness } from './readiness.ts'
import { createGroupSubmissions } from './submit-group.ts'
import { createWaiter, type WaitOptions } from './waiter.ts'

export function createProducer(options: ProducerOptions = {}): Producer {
  const settings = readProducerOptions(options)
  const { schema, listen, tasks, patienceMs, maxPayloadBytes } = settings
  const checkName = oneTaskAName()
  for (const task of tasks) checkName(task)
  const away = tellOfPostgres(settings.logger, 'calls wait and are tried again')
  const logger = withOutages(settings.logger, [away])
  const pool = openPool(
    settings.postgres,
    settings.connections,
    error => logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
    { onAnswer: away.outage.works },
  )
  const patiently = patient({ ...PAUSES, forMs: patienceMs })
  const hints = createJobHints(settings.redis, settings.logger)
  const readiness = createReadiness({ pool, schema, tasks, hints, patiently })
  const calls = createPostgresCalls(pool, schema, patiently, readiness, logger)
  const { once, whenReady } = calls
  const lanes = createKnownLanes(pool, schema, patiently)
  const inserts = createJobInserts(calls, patienceMs, hints)
  const parts: ProducerParts = {
    calls,
    lanes,
    inserts,
    shapes: createJobShapes(),
    checkName,
    maxPayloadBytes,
  }
  const groups = createGroupSubmissions(parts)
  const waiter = createWaiter({ listen, pool, schema, patiently, logger })
  const follower = createLogFollower({ listen, pool, schema, patiently, logger })

  return {
    enqueue: createEnqueue(parts),
    enqueueMany: createEnqueueMany(parts),

    async get<Result>(job: JobRef<Result> | string) {
      const id = jobIdOf(job)
      const [found] = await once(undefined, db => readJobs(db, schema, [id]))
      return found as Job<Result> | undefined
    },

    async explain(job) {
      const id = jobIdOf(job)
      return once(undefined, db => explainJob(db, schema, id))
    },

    async waitFor<Result>(job: JobRef<Result> | string, wait: WaitOptions = {}) {
      const id = jobIdOf(job)
      await whenReady()
      return (await waiter.waitForJob(id, wait)) as FinishedJob<Result>
    },

    async getLogs(job, page = {}) {
      const id = jobIdOf(job)
      return once(undefined, db => readLogPage(db, schema, id, page))
    },

    async *followLogs(job, follow = {}) {
      const id = jobIdOf(job)
      await whenReady()
      yield* follower.follow(id, follow)
    },

    async getProgress(job) {
      const id = jobIdOf(job)
      return once(undefined, db => readProgress(db, schema, id))
    },

    async cancel(job, given = {}) {
      const id = jobIdOf(job)
      checkOptions('JOB_INVALID', 'cancel', given, ['tx'])
      const { tx } = given
      const answers = await once(tx, db => cancelJobs(db, schema, [id]))
      return answers.get(id) ?? 'unknown'
    },

    async change(job, given) {
      const id = jobIdOf(job)
      const { tx, change } = readGiven('JOB_INVALID', 'change', () => {
        const { tx, ...options } = given ?? {}
        return { tx, change: toChange(options) }
      })
      return once(tx, db => changeJob(db, schema, id, change))
    },

    group(given = {}) {
      checkOptions('GROUP_INVALID', 'group', given, ['name', 'id'])
      const { name } = given
      if (name !== undefined) checkLabel('name', name, 200, 'GROUP_INVALID')
      const id = given.id === undefined ? newJobId() : toGroupId(given.id)
      const isChosen = given.id !== undefined
      const group = { id, isNew: true, isChosen, ...(name === undefined ? {} : { name }) }
      return createGroupBuilder({
        id,
        isLive: false,
        checkName,
        submit: (drafts, tx) => groups.submit(group, drafts, tx),
      })
    },

    addToGroup(given) {
      const id = groupIdOf(given)
      return createGroupBuilder({
        id,
        isLive: true,
        checkName,
        submit: (drafts, tx) => groups.submit({ id, isNew: false }, drafts, tx),
      })
    },

    async getGroup(group) {
      const id = groupIdOf(group)
      return (await once(undefined, db => readGroups(db, schema, [id])))[0]
    },

    async waitForGroup(group, wait = {}) {
      const id = groupIdOf(group)
      await whenReady()
      return waiter.waitForGroup(id, wait)
    },

    async cancelGroup(group, given = {}) {
      const id = groupIdOf(group)
      checkOptions('GROUP_INVALID', 'cancelGroup', given, ['tx'])
      const { tx } = given
      return once(tx, db => cancelGroup(db, schema, id))
    },

    async watchGroups(onEvent) {
      if (typeof onEvent !== 'function')
        throw new LongshoreError(
          'CONFIG_INVALID',
          `watchGroups takes a function that is called with each event; got ${shown(onEvent)}`,
        )
      await whenReady()
      return waiter.watchGroups(onEvent)
    },

    async resumeWorkflow(key, given = {}) {
      checkLabel('workflow', key, 200, 'JOB_INVALID')
      checkOptions('JOB_INVALID', 'resumeWorkflow', given, ['tx'])
      const { tx } = given
      return once(tx, db => resumeWorkflow(db, schema, key))
    },

    async close() {
      readiness.close()
      await inserts.idle()
      await groups.idle()
      await waiter.close()
      await follower.close()
      hints.close()
      await pool.end()
    },
  }
}
