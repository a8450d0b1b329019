/**
 * The producer: what an application embeds to enqueue jobs and to read them back. Needs Postgres only. Enqueues made
 * at the same time outside a transaction share an insert and a commit.
 */
import { checkOptions, checkWhole, readGiven } from '../job/check-options.ts'
import { type Duration, toTimerMs } from '../job/duration.ts'
import {
  type ChangeOptions,
  type JobOptions,
  type Shape,
  toChange,
  toShape,
  toWorkflowPlace,
  type WorkflowPlace,
} from '../job/enqueue-options.ts'
import { LongshoreError } from '../job/errors.ts'
import type { Explanation } from '../job/explanation.ts'
import type { FinishedGroup, GroupEvent, GroupRef, GroupStatus } from '../job/group.ts'
import type { FinishedJob, Job, JobRef } from '../job/job.ts'
import { groupIdOf, type JobId, jobIdOf, newJobId, toGroupId, toJobId } from '../job/job-id.ts'
import type { LogLine, Progress } from '../job/job-log.ts'
import { oneTaskAName } from '../job/one-task-a-name.ts'
import type { Queryable } from '../job/queryable.ts'
import { shown } from '../job/shown.ts'
import { checkLabel, checkTask, type Task } from '../job/task.ts'
import { type CancelAnswer, cancelJobs } from '../postgres/cancel-jobs.ts'
import { type ChangeAnswer, changeJob } from '../postgres/change-job.ts'
import { checkDatabase } from '../postgres/check-database.ts'
import { openPool } from '../postgres/connect.ts'
import {
  enqueueJobs,
  isUsual,
  type MadeReady,
  makeLane,
  type NewJob,
  shapeText,
} from '../postgres/enqueue-jobs.ts'
import { explainJob } from '../postgres/explain-job.ts'
import {
  type AddedTo,
  addToGroup,
  type CancelGroupAnswer,
  cancelGroup,
  type NewGroupJob,
  readGroups,
  resumeWorkflow,
} from '../postgres/groups.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { readJobs, readTask } from '../postgres/read-jobs.ts'
import { readProgress } from '../postgres/read-logs.ts'
import { registerTasks } from '../postgres/register-tasks.ts'
import { readDeployment } from '../postgres/relay-reads.ts'
import { checkSchemaName, DEFAULT_SCHEMA } from '../postgres/schema-name.ts'
import { patient } from '../postgres/unavailable.ts'
import type { PublishedHints } from '../redis/publish-hints.ts'
import { type RedisConfig, readRedisConfig } from '../redis/redis-config.ts'
import { createCallOrder } from '../runtime/call-order.ts'
import { createLogger, type Logger, withSafeErrors } from '../runtime/logger.ts'
import { loadTracing, traceEnqueue } from '../runtime/tracing.ts'
import { encodeAll, encodePayload } from './encode-payload.ts'
import { createEnqueueBatch, PAUSES } from './enqueue-batch.ts'
import { createLogFollower, type FollowOptions, type LogPageOptions, readLogPage } from './follow-logs.ts'
import { createGroupBatch, isSmall } from './group-batch.ts'
import { createGroupBuilder, type DraftJob, type GroupBuilder, inChunks, toNewJob } from './group-builder.ts'
import { createWaiter, type WaitOptions } from './waiter.ts'

export interface ProducerOptions {
  /** Where Postgres is: a connection string or `pg` settings. Default: `DATABASE_URL`. */
  postgres?: PostgresConfig
  /** Where to listen for notifications, if `postgres` leads to a pooler in transaction mode. Default: `DATABASE_LISTEN_URL`, else `postgres`. */
  listen?: PostgresConfig
  /**
   * Where Redis is. Only a hint: the relay hears there of jobs right after their commit, ahead of its look at Postgres. Default: none,
   * not even `REDIS_URL`; a producer needs Postgres only.
   */
  redis?: RedisConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
  /** Tasks to make known at the start, so that plain SQL enqueues take their defaults from them. */
  // biome-ignore lint/suspicious/noExplicitAny: tasks of every type are welcome here, only their names are read
  tasks?: readonly Task<any, any, any, any>[]
  /** Connections to Postgres at most. Default 10. */
  connections?: number
  /** Largest payload in bytes of JSON, at most 4 MiB. Default 256 KiB. */
  maxPayloadBytes?: number
  /**
   * How long a call is tried again while Postgres is away, because it restarts or fails over; then the call rejects with
   * `STORE_UNAVAILABLE`. 0: one try. Not inside a transaction of yours. Default `'10s'`.
   */
  patience?: Duration
  logger?: Logger
}

export interface InTransaction {
  /** Your own client, inside your transaction: it happens if and when that commits. */
  tx?: Queryable
}

export interface GroupOptions {
  /** What people call it. */
  name?: string
  /** A UUID of your own: submitting it again changes nothing, also when the group has ended meanwhile. */
  id?: string
}

export interface EnqueueOptions extends JobOptions, InTransaction {
  /** A UUID of your own: enqueueing it again changes nothing, also when the job has run meanwhile. */
  id?: string
}

export interface Producer {
  /** Resolves when the job is durable, or, with `tx`, when it is part of that transaction. */
  enqueue<Input, Result>(
    // biome-ignore lint/suspicious/noExplicitAny: what the handler sees does not matter to the producer
    task: Task<Input, any, any, Result>,
    payload: NoInfer<Input>,
    options?: EnqueueOptions,
  ): Promise<JobRef<Result>>
  /** All of them or none. The options hold for each. */
  enqueueMany<Input, Result>(
    // biome-ignore lint/suspicious/noExplicitAny: as above
    task: Task<Input, any, any, Result>,
    payloads: readonly NoInfer<Input>[],
    options?: Omit<EnqueueOptions, 'id'>,
  ): Promise<JobRef<Result>[]>
  /** The job as it is now, or undefined when there is none (or its history has been dropped). */
  get<Result>(job: JobRef<Result> | string): Promise<Job<Result> | undefined>
  /** Why the job is not running, where it runs, or how it ended; undefined as from `get`. */
  explain(job: JobRef | string): Promise<Explanation | undefined>
  /** Resolves when the job has ended, whichever way. Rejects with `WAIT_TIMEOUT` when that takes too long. */
  waitFor<Result>(job: JobRef<Result> | string, options?: WaitOptions): Promise<FinishedJob<Result>>
  /** What the handler has logged so far, over all its runs, in their order; a page of it. While the job runs as well. */
  getLogs(job: JobRef | string, options?: LogPageOptions): Promise<LogLine[]>
  /**
   * The lines of a job as they come, from the first on. Ends when the job has ended and, a second later, nothing more has come. Throws
   * `JOB_NOT_FOUND` when there is no such job.
   */
  followLogs(job: JobRef | string, options?: FollowOptions): AsyncIterable<LogLine>
  /** How far the job is, as its handler said last; undefined when it has not. */
  getProgress(job: JobRef | string): Promise<Progress | undefined>
  /**
   * Cancel a job: what has not started never starts; what runs, in whichever process, gets its signal within about a second
   * and ends as cancelled. Cancelling again changes nothing.
   */
  cancel(job: JobRef | string, options?: InTransaction): Promise<CancelAnswer>
  /** Change a job that has not started. */
  change(job: JobRef | string, change: ChangeOptions & InTransaction): Promise<ChangeAnswer>
  /** A new group: add jobs to it, say what they run after, and submit it. */
  group(options?: GroupOptions): GroupBuilder
  /** More jobs for a group that has not ended. They may run after jobs of it that wait, run or have ended. */
  addToGroup(group: GroupRef | string): GroupBuilder
  /** The group as it is now, with how many of its jobs are in each state; undefined when there is none. */
  getGroup(group: GroupRef | string): Promise<GroupStatus | undefined>
  /** Resolves when the group has ended, whichever way. Rejects with `WAIT_TIMEOUT` when that takes too long. */
  waitForGroup(group: GroupRef | string, options?: WaitOptions): Promise<FinishedGroup>
  /** Cancel what is left of a group. Cancelling again changes nothing. */
  cancelGroup(group: GroupRef | string, options?: InTransaction): Promise<CancelGroupAnswer>
  /**
   * Be told when groups end or are found stuck. A hint: what happens while the connection is broken is not told again, so
   * whoever must know asks `waitForGroup`. Call what is returned to hear no more.
   */
  watchGroups(onEvent: (event: GroupEvent) => void): Promise<() => void>
  /** Let a workflow that a failure has halted go on with its next job. Returns whether it was halted. */
  resumeWorkflow(key: string, options?: InTransaction): Promise<boolean>
  /** Waits for what is under way, then closes the connections. */
  close(): Promise<void>
}

const KNOWN = Object.keys({
  postgres: true,
  listen: true,
  redis: true,
  schema: true,
  tasks: true,
  connections: true,
  maxPayloadBytes: true,
  patience: true,
  logger: true,
} satisfies Record<keyof ProducerOptions, true>)
const NO_OPTIONS: EnqueueOptions = Object.freeze({})
const NO_PLACE: WorkflowPlace = Object.freeze({})

/** Batches of single enqueues under way at once. */
const BATCHES = 2
/** Of jobs of workflows: as many workflows may be held by somebody's open transaction before all others wait too. */
const WORKFLOW_BATCHES = 4
const MOST_KNOWN_LANES = 10_000
const MOST_CONNECTIONS = 1000
const MOST_PAYLOAD_BYTES = 4 * 1024 * 1024

export function createProducer(options: ProducerOptions = {}): Producer {
  checkOptions('CONFIG_INVALID', 'createProducer', options, KNOWN)
  checkTasks(options.tasks ?? [])
  const checkName = oneTaskAName()
  options.tasks?.forEach(checkName)
  if (options.redis) readRedisConfig(options.redis)
  const schema = checkSchemaName(options.schema ?? DEFAULT_SCHEMA)
  const logger = options.logger ? withSafeErrors(options.logger) : createLogger('longshore')
  const { connections = 10, maxPayloadBytes = 256 * 1024 } = options
  checkWhole('CONFIG_INVALID', 'connections', connections, 1, MOST_CONNECTIONS)
  checkWhole('CONFIG_INVALID', 'maxPayloadBytes', maxPayloadBytes, 1, MOST_PAYLOAD_BYTES)
  const patienceMs = toTimerMs(options.patience ?? '10s', 'patience')
  const patiently = patient({ ...PAUSES, forMs: patienceMs })
  const postgres = options.postgres ?? process.env['DATABASE_URL'] ?? ''
  const pool = openPool(postgres, connections, error =>
    logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
  )
  let hints: PublishedHints | undefined
  const hint = (jobs: MadeReady[]) => {
    if (!hints || jobs.length === 0) return
    const byQueue = new Map<string, MadeReady[]>()
    for (const job of jobs) {
      const alike = byQueue.get(job.queue)
      if (alike) alike.push(job)
      else byQueue.set(job.queue, [job])
    }
    for (const [queue, alike] of byQueue) hints.give(queue, alike)
  }
  const hinting = { isPossible: (jobs: number) => hints?.isPossible(jobs) ?? false, give: hint }
  const batch = createEnqueueBatch(pool, schema, { inFlight: BATCHES, patienceMs }, hinting)
  /** Jobs of workflows travel apart: they may have to wait for whoever holds theirs. */
  const workflowBatch = createEnqueueBatch(
    pool,
    schema,
    { inFlight: WORKFLOW_BATCHES, isByWorkflow: true, patienceMs },
    hinting,
  )
  const inCallOrder = createCallOrder()
  const listen = options.listen ?? (process.env['DATABASE_LISTEN_URL'] || postgres)
  const waiter = createWaiter({ listen, pool, schema, patiently, logger })
  const follower = createLogFollower({ listen, pool, schema, patiently, logger })

  // Checked once, at the first use; a failure is not remembered, so that a later migrate heals it.
  let ready: Promise<void> | undefined
  let isReady = false
  let isClosed = false
  const start = async () => {
    await checkDatabase(pool, schema)
    await loadTracing()
    if (options.tasks && options.tasks.length > 0) await registerTasks(pool, schema, options.tasks)
    if (options.redis && !hints) {
      // Only now: whoever does without Redis does not load its client.
      const { publishHints } = await import('../redis/publish-hints.ts')
      hints = publishHints(options.redis, await readDeployment(pool, schema), logger)
    }
    isReady = true
  }
  const whenReady = () => {
    if (isClosed) throw new LongshoreError('PRODUCER_CLOSED', 'this producer is closed: make a new one')
    if (isReady) return ready
    // Calls share a try; how often it is made anew is for each to say.
    return patiently(() => {
      ready ??= start().catch(error => {
        ready = undefined
        throw error
      })
      return ready
    })
  }

  const plainShapes = new WeakMap<Task, { shape: Shape; text: string; usual: Shape | undefined }>()
  const shapeOf = (task: Task, given: EnqueueOptions) => {
    const known = given === NO_OPTIONS ? plainShapes.get(task) : undefined
    if (known) return known
    const shape = readGiven('JOB_INVALID', 'enqueue', () => toShape(task, given))
    const made = { shape, text: shapeText(shape), usual: isUsual(shape) ? shape : undefined }
    if (given === NO_OPTIONS) plainShapes.set(task, made)
    return made
  }

  const prepare = async (shape: Shape, tx: Queryable | undefined) => {
    await whenReady()
    if (tx !== undefined) checkTransaction(tx)
    await knowLane(shape)
  }

  /** A chosen id may be known already. Within a caller's transaction nothing is retried: it has aborted. */
  const insert = (jobs: NewJob[], isChecked: boolean, tx: Queryable | undefined) => {
    if (tx) return insertChunks(tx, jobs, isChecked)
    const [job] = jobs
    if (job && jobs.length === 1)
      return (job.workflow === undefined ? batch : workflowBatch).add(job, isChecked)
    const isOneChunk = inChunks(jobs).next().value?.length === jobs.length
    return patiently(async tries =>
      isOneChunk
        ? (await enqueueJobs(pool, schema, jobs, isChecked || tries > 1)).made
        : pool.transaction(own => insertChunks(own, jobs, isChecked || tries > 1)),
    )
  }

  /**
   * Lanes are made before their first job, one at a time: enqueues that make one each would leave twins, which cost
   * every later claim, and inside two serializable transactions each would be a reason for the other to fail.
   */
  const knownLanes = new Map<string, Promise<void> | 'made'>()
  const knowLane = async (shape: Shape) => {
    const { queue, task, tag, constraintTag, concurrencyKey = '' } = shape
    const lane = `${queue}\n${task}\n${tag}\n${constraintTag}\n${concurrencyKey}`
    if (knownLanes.get(lane) === 'made') return
    await patiently(() => {
      const made = knownLanes.get(lane)
      if (made) return Promise.resolve(made)
      if (knownLanes.size >= MOST_KNOWN_LANES) knownLanes.clear()
      const making = makeLane(pool, schema, shape).then(
        () => void knownLanes.set(lane, 'made'),
        error => {
          knownLanes.delete(lane)
          throw error
        },
      )
      knownLanes.set(lane, making)
      return making
    })
  }

  /** Ids are unique over all tasks: nothing of the one that was asked for would ever run. */
  const refuseOtherTask = async (db: Queryable, id: JobId, task: string) => {
    const known = await readTask(db, schema, id)
    if (known === task) return
    const whose =
      known === undefined
        ? 'taken by a job of another user, so no job was made: derive ids from the name of your service too'
        : `that of a job of task ${known}, so no job of task ${task} was made: derive ids from the name of the task too`
    throw new LongshoreError('JOB_INVALID', `id ${id} is ${whose}`)
  }

  const insertChunks = async (db: Queryable, jobs: NewJob[], isChecked: boolean) => {
    const made = isChecked ? new Set<string>() : undefined
    for (const chunk of inChunks(jobs)) {
      const { made: ids } = await enqueueJobs(db, schema, chunk, isChecked)
      for (const id of ids ?? []) made?.add(id)
    }
    return made
  }

  /** Insert the jobs of a group in one transaction. Returns whether they are there, now or by an earlier try. */
  const submit = async (
    group: AddedTo & { isChosen?: boolean },
    drafts: DraftJob[],
    tx: Queryable | undefined,
  ): Promise<boolean> => {
    if (tx !== undefined) checkTransaction(tx)
    const jobs: NewGroupJob[] = []
    for (const draft of drafts) {
      const encoded = encodePayload(draft.task, draft.payload, maxPayloadBytes)
      jobs.push(toNewJob(draft, typeof encoded === 'string' ? encoded : await encoded))
    }
    await whenReady()
    for (const draft of drafts) await knowLane(draft.shape)
    const queues = new Set(jobs.map(job => job.queue))
    const send = (traced: NewGroupJob[]) =>
      // A group whose id was chosen may be in somebody's open transaction: others must not wait for that.
      tx === undefined && group.isNew && !group.isChosen && isSmall(traced)
        ? groupBatch.add(group, traced)
        : submitChunks(group, [...inChunks(traced)], tx)
    return traceEnqueue(trace => send(withTrace(jobs, trace)), {
      name: 'group',
      queue: queues.size === 1 ? jobs[0]?.queue : undefined,
      jobs: jobs.length,
      groupId: group.id,
    })
  }

  const submitChunks = async (
    group: AddedTo,
    chunks: readonly (readonly NewGroupJob[])[],
    tx: Queryable | undefined,
    isTriedBefore = false,
  ): Promise<boolean> => {
    const insertAll = async (db: Queryable, isRetried: boolean) => {
      const own = new Set<string>()
      for (const [at, chunk] of chunks.entries()) {
        const into = at === 0 ? group : { id: group.id, isNew: false }
        const answer = await addToGroup(db, schema, into, chunk, own, isRetried && at === 0)
        if (answer !== 'added') return answer === 'again'
        for (const job of chunk) own.add(job.id)
      }
      return true
    }
    if (tx) return insertAll(tx, false)
    return patiently(tries => {
      const isRetried = isTriedBefore || tries > 1
      return chunks.length === 1
        ? insertAll(pool, isRetried)
        : pool.transaction(own => insertAll(own, isRetried))
    })
  }
  const groupBatch = createGroupBatch(pool, schema, BATCHES, (group, jobs, isRetried) =>
    submitChunks(group, [jobs], undefined, isRetried),
  )

  /** For what changes nothing when it is done again. Within a caller's transaction nothing is retried. */
  const once = <T>(tx: Queryable | undefined, call: (db: Queryable) => Promise<T>): Promise<T> =>
    tx ? call(tx) : patiently(() => call(pool))

  return {
    async enqueue(task, payload, given = NO_OPTIONS) {
      checkTask(task)
      checkName(task as Task)
      const { shape, text: common, usual } = shapeOf(task as Task, given)
      const place = given === NO_OPTIONS ? NO_PLACE : toWorkflowPlace(given)
      // As they are at the call: the caller may use the object again.
      const { tx, id: chosen } = given
      const id = chosen === undefined ? newJobId() : toJobId(chosen)
      const send = (payload: string) => {
        const sendTraced = (trace: string | undefined) => {
          const job = { id, queue: shape.queue, shape: common, payload, trace, usual, ...place }
          return insert([job], chosen !== undefined, tx)
        }
        return traceEnqueue(sendTraced, { name: task.name, queue: shape.queue, jobs: 1, jobId: id })
      }
      const encode = async () => {
        const text = await encodePayload(task as Task, payload, maxPayloadBytes)
        await prepare(shape, tx)
        return text
      }
      const made = await (place.workflow === undefined
        ? send(await encode())
        : inCallOrder(place.workflow, encode(), send))
      const isNew = made === undefined || made.has(id) || chosen === undefined
      if (!isNew) await once(tx, db => refuseOtherTask(db, id, task.name))
      return { id, task: task.name, isNew }
    },

    async enqueueMany(task, payloads, given = NO_OPTIONS) {
      checkTask(task)
      checkName(task as Task)
      if (!Array.isArray(payloads)) {
        throw new LongshoreError(
          'JOB_INVALID',
          `enqueueMany takes a list of payloads; got ${typeof payloads}`,
        )
      }
      const { shape, text: common, usual } = shapeOf(task as Task, given)
      const place = toWorkflowPlace(given)
      const { tx } = given
      const jobs = (await encodeAll(task as Task, payloads, maxPayloadBytes)).map(
        (payload): NewJob => ({
          id: newJobId(),
          queue: shape.queue,
          shape: common,
          payload,
          usual,
          ...place,
        }),
      )
      if (jobs.length === 0) await whenReady()
      else {
        await prepare(shape, tx)
        await traceEnqueue(trace => insert(withTrace(jobs, trace), false, tx), {
          name: task.name,
          queue: shape.queue,
          jobs: jobs.length,
          jobId: jobs.length === 1 ? jobs[0]?.id : undefined,
        })
      }
      return jobs.map(job => ({ id: job.id, task: task.name, isNew: true }))
    },

    async get<Result>(job: JobRef<Result> | string) {
      const id = jobIdOf(job)
      await whenReady()
      const [found] = await once(undefined, db => readJobs(db, schema, [id]))
      return found as Job<Result> | undefined
    },

    async explain(job) {
      const id = jobIdOf(job)
      await whenReady()
      return once(undefined, db => explainJob(db, schema, id))
    },

    async waitFor<Result>(job: JobRef<Result> | string, wait: WaitOptions = {}) {
      const id = jobIdOf(job)
      await whenReady()
      return (await waiter.waitForJob(id, wait)) as FinishedJob<Result>
    },

    async getLogs(job, page = {}) {
      const id = jobIdOf(job)
      await whenReady()
      return once(undefined, db => readLogPage(db, schema, id, page))
    },

    async *followLogs(job, follow = {}) {
      const id = jobIdOf(job)
      await whenReady()
      yield* follower.follow(id, follow)
    },

    async getProgress(job) {
      const id = jobIdOf(job)
      await whenReady()
      return once(undefined, db => readProgress(db, schema, id))
    },

    async cancel(job, given = {}) {
      const id = jobIdOf(job)
      checkOptions('JOB_INVALID', 'cancel', given, ['tx'])
      const { tx } = given
      if (tx !== undefined) checkTransaction(tx)
      await whenReady()
      const answers = await once(tx, db => cancelJobs(db, schema, [id]))
      return answers.get(id) ?? 'unknown'
    },

    async change(job, given) {
      const id = jobIdOf(job)
      const { tx, change } = readGiven('JOB_INVALID', 'change', () => {
        const { tx, ...options } = given ?? {}
        return { tx, change: toChange(options) }
      })
      if (tx !== undefined) checkTransaction(tx)
      await whenReady()
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
        submit: (drafts, tx) => submit(group, drafts, tx),
      })
    },

    addToGroup(given) {
      const id = groupIdOf(given)
      return createGroupBuilder({
        id,
        isLive: true,
        checkName,
        submit: (drafts, tx) => submit({ id, isNew: false }, drafts, tx),
      })
    },

    async getGroup(group) {
      const id = groupIdOf(group)
      await whenReady()
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
      if (tx !== undefined) checkTransaction(tx)
      await whenReady()
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
      if (tx !== undefined) checkTransaction(tx)
      await whenReady()
      return once(tx, db => resumeWorkflow(db, schema, key))
    },

    async close() {
      isClosed = true
      await batch.idle()
      await workflowBatch.idle()
      await groupBatch.idle()
      await waiter.close()
      await follower.close()
      hints?.close()
      await pool.end()
    },
  }
}

/** A pool would run the insert on a connection outside the caller's transaction. */
function checkTransaction(tx: Queryable): void {
  if (typeof tx?.query === 'function' && !('totalCount' in tx)) return
  throw new LongshoreError(
    'JOB_INVALID',
    '`tx` must be the one client that your transaction runs on, with a `query` method; a pool is not',
  )
}

const withTrace = <T extends NewJob>(jobs: T[], trace: string | undefined): T[] =>
  trace === undefined ? jobs : jobs.map(job => ({ ...job, trace }))

function checkTasks(tasks: unknown): void {
  if (!Array.isArray(tasks)) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `tasks must be a list of tasks made by defineTask({ … }); got ${shown(tasks)}`,
    )
  }
  for (const task of tasks) checkTask(task, 'each of `tasks`')
}
