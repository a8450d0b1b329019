/**
 * The producer: what an application embeds to enqueue jobs and to read them back. Needs Postgres only. Enqueues made
 * at the same time outside a transaction share an insert and a commit.
 */
import { checkOptions, checkWhole, readGiven } from '../job/check-options.ts'
import { type Duration, toTimerMs } from '../job/duration.ts'
import {
  type ChangeOptions,
  JOB_OPTIONS,
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
import type { Queryable, Transaction } from '../job/queryable.ts'
import { shown } from '../job/shown.ts'
import { checkLabel, checkTask, type Task } from '../job/task.ts'
import { type CancelAnswer, cancelJobs } from '../postgres/cancel-jobs.ts'
import { type ChangeAnswer, changeJob } from '../postgres/change-job.ts'
import { checkDatabase } from '../postgres/check-database.ts'
import { openPool } from '../postgres/connect.ts'
import {
  type EnqueueHow,
  enqueueChunks,
  enqueueJobs,
  isUsual,
  type MadeReady,
  makeLanes,
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
import { tellOfPostgres } from '../postgres/postgres-outage.ts'
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
import { withOutages } from '../runtime/outage.ts'
import { loadTracing, traceEnqueue } from '../runtime/tracing.ts'
import { encodeAll, encodePayload } from './encode-payload.ts'
import { createEnqueueBatch, PAUSES } from './enqueue-batch.ts'
import { createLogFollower, type FollowOptions, type LogPageOptions, readLogPage } from './follow-logs.ts'
import { createGroupBatch, isSmall } from './group-batch.ts'
import { createGroupBuilder, type DraftJob, type GroupBuilder, inChunks, toNewJob } from './group-builder.ts'
import { type ManyOptions, type Shaped, toManyJobs } from './many-jobs.ts'
import { joinTransaction } from './transaction.ts'
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
  tx?: Transaction | undefined
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
  /** All of them or none. The options hold for each of them; `each` gives one its own. */
  enqueueMany<Input, Result>(
    // biome-ignore lint/suspicious/noExplicitAny: as above
    task: Task<Input, any, any, Result>,
    payloads: readonly NoInfer<Input>[],
    options?: ManyOptions<NoInfer<Input>> & InTransaction,
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
const NO_OPTIONS: JobOptions & InTransaction = Object.freeze({})
const KNOWN_OF_ENQUEUE = [...JOB_OPTIONS, 'id', 'tx']
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
  const told = options.logger ? withSafeErrors(options.logger) : createLogger('longshore')
  const away = tellOfPostgres(told, 'calls wait and are tried again')
  const logger = withOutages(told, [away])
  const { connections = 10, maxPayloadBytes = 256 * 1024 } = options
  checkWhole('CONFIG_INVALID', 'connections', connections, 1, MOST_CONNECTIONS)
  checkWhole('CONFIG_INVALID', 'maxPayloadBytes', maxPayloadBytes, 1, MOST_PAYLOAD_BYTES)
  const patienceMs = toTimerMs(options.patience ?? '10s', 'patience')
  const patiently = patient({ ...PAUSES, forMs: patienceMs })
  const postgres = options.postgres ?? process.env['DATABASE_URL'] ?? ''
  const pool = openPool(
    postgres,
    connections,
    error => logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
    { onAnswer: away.outage.works },
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
  let checked: Promise<void> | undefined
  let ready: Promise<void> | undefined
  let isReady = false
  let isClosed = false
  const refuseClosed = () => {
    if (isClosed) throw new LongshoreError('PRODUCER_CLOSED', 'this producer is closed: make a new one')
  }
  // Calls share a try; how often it is made anew is for each to say.
  const check = () => {
    checked ??= checkDatabase(pool, schema).catch(error => {
      checked = undefined
      throw error
    })
    return checked
  }
  const whenChecked = () => {
    refuseClosed()
    return patiently(check)
  }
  const start = async () => {
    await check()
    await loadTracing()
    if (options.tasks && options.tasks.length > 0) await registerTasks(pool, schema, options.tasks)
    if (options.redis && !hints) {
      // Only now: whoever does without Redis does not load its client.
      const { publishHints } = await import('../redis/publish-hints.ts')
      hints = publishHints(options.redis, await readDeployment(pool, schema), told)
    }
    isReady = true
  }
  const whenReady = () => {
    refuseClosed()
    if (isReady) return ready
    return patiently(() => {
      ready ??= start().catch(error => {
        ready = undefined
        throw error
      })
      return ready
    })
  }
  loadTracing() // now: a statement in a caller's transaction does not wait for it

  /**
   * In a transaction of the caller: the statement is sent before anything is waited for, except for `prepared`. Neither the check of the
   * database nor the lanes come first: a lane that is missing is made within. What the check finds explains why a statement failed.
   */
  const inTransaction = async <P, T>(
    tx: Transaction,
    prepared: P | Promise<P>,
    send: (db: Queryable, prepared: P) => Promise<T>,
  ): Promise<T> => {
    const isLater = prepared instanceof Promise
    if (isLater) prepared.catch(() => undefined)
    const checking = whenChecked()
    checking.then(getReady, () => undefined)
    const db = joinTransaction(tx, schema, isLater)
    const sent = isLater ? prepared.then(value => send(db, value)) : send(db, prepared)
    const [, check] = await Promise.allSettled([sent, checking])
    if (check.status === 'rejected' && !isClosed) throw check.reason
    return sent
  }
  /** What such a statement does not wait for: it might wait for the caller's transaction. */
  const getReady = async () => {
    try {
      await whenReady()
    } catch (error) {
      if (!isClosed)
        logger.warn({ err: error }, 'the producer could not get ready; it tries again at its next call')
    }
  }

  const shapeOf = (task: Task, given: JobOptions): Shaped => {
    const shape = toShape(task, given)
    return { shape, text: shapeText(shape), usual: isUsual(shape) ? shape : undefined }
  }
  const plainShapes = new WeakMap<Task, Shaped>()
  const plainShapeOf = (task: Task) => {
    const known = plainShapes.get(task) ?? shapeOf(task, NO_OPTIONS)
    plainShapes.set(task, known)
    return known
  }

  /** A chosen id may be known already. */
  const insert = (jobs: NewJob[], how: EnqueueHow) => {
    const [job] = jobs
    const { isChecked = false, isWhole = false } = how
    if (job && jobs.length === 1 && !isWhole)
      return (job.workflow === undefined ? batch : workflowBatch).add(job, isChecked)
    const chunks = [...inChunks(jobs)]
    return patiently(tries => {
      const checked = { isWhole, isChecked: isChecked || tries > 1 }
      return chunks.length === 1
        ? enqueueChunks(pool, schema, chunks, checked)
        : pool.transaction(own => insertChunks(own, chunks, checked))
    })
  }

  const insertChunks = async (db: Queryable, chunks: NewJob[][], how: EnqueueHow) => {
    const made = how.isChecked ? new Set<string>() : undefined
    for (const chunk of chunks)
      for (const id of (await enqueueJobs(db, schema, chunk, how)).made ?? []) made?.add(id)
    return made
  }

  /**
   * Outside a caller's transaction lanes are made before their first job, one at a time: enqueues that make one each would leave twins,
   * which cost every later claim.
   */
  const knownLanes = new Map<string, Promise<void> | 'made'>()
  const isLaneKnown = (shape: Shape) => knownLanes.get(laneOf(shape)) === 'made'
  const knowLanes = async (shapes: Iterable<Shape>) => {
    const needed = new Map<string, Shape>()
    for (const shape of shapes) if (!isLaneKnown(shape)) needed.set(laneOf(shape), shape)
    if (needed.size > 0) await patiently(() => makeMissing(needed))
  }
  /** Calls share a try, as above. */
  const makeMissing = async (needed: ReadonlyMap<string, Shape>) => {
    const underWay = [...needed.keys()].map(lane => knownLanes.get(lane))
    const missing = [...needed].filter(([lane]) => !knownLanes.has(lane))
    if (missing.length > 0) {
      if (knownLanes.size + missing.length > MOST_KNOWN_LANES) knownLanes.clear()
      const shapes = missing.map(([, shape]) => shape)
      const making = makeLanes(pool, schema, shapes).then(
        () => {
          for (const [lane] of missing) knownLanes.set(lane, 'made')
        },
        error => {
          for (const [lane] of missing) knownLanes.delete(lane)
          throw error
        },
      )
      for (const [lane] of missing) knownLanes.set(lane, making)
      underWay.push(making)
    }
    await Promise.all(underWay)
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

  /** Insert the jobs of a group, all or none. Returns whether they are there, now or by an earlier try. */
  const submit = async (
    group: AddedTo & { isChosen?: boolean },
    drafts: DraftJob[],
    tx: Transaction | undefined,
  ): Promise<boolean> => {
    const encoded = encodeAll(drafts, maxPayloadBytes)
    const send = (payloads: string[], insert: (jobs: NewGroupJob[]) => Promise<boolean>) => {
      const jobs = drafts.map((draft, n) => toNewJob(draft, payloads[n] as string))
      return traceEnqueue(trace => insert(withTrace(jobs, trace)), {
        name: 'group',
        queue: queueOf(jobs),
        jobs: jobs.length,
        groupId: group.id,
      })
    }
    if (tx !== undefined) {
      return inTransaction(tx, encoded, (db, payloads) =>
        send(payloads, async jobs => {
          const chunks = [...inChunks(jobs)]
          return (await addToGroup(db, schema, group, chunks, new Set(), false)) === 'added'
        }),
      )
    }
    const payloads = await encoded
    await whenReady()
    await knowLanes(drafts.map(draft => draft.shape))
    // A group whose id was chosen may be in somebody's open transaction: others must not wait for that.
    return send(payloads, jobs =>
      group.isNew && !group.isChosen && isSmall(jobs)
        ? groupBatch.add(group, jobs)
        : submitChunks(group, [...inChunks(jobs)]),
    )
  }

  const submitChunks = (
    group: AddedTo,
    chunks: readonly (readonly NewGroupJob[])[],
    isTriedBefore = false,
  ): Promise<boolean> => {
    const insertAll = async (db: Queryable, isRetried: boolean) => {
      const own = new Set<string>()
      for (const [at, chunk] of chunks.entries()) {
        const into = at === 0 ? group : { id: group.id, isNew: false }
        const answer = await addToGroup(db, schema, into, [chunk], own, isRetried && at === 0)
        if (answer !== 'added') return answer === 'again'
        for (const job of chunk) own.add(job.id)
      }
      return true
    }
    return patiently(tries => {
      const isRetried = isTriedBefore || tries > 1
      return chunks.length === 1
        ? insertAll(pool, isRetried)
        : pool.transaction(own => insertAll(own, isRetried))
    })
  }
  const groupBatch = createGroupBatch(pool, schema, BATCHES, (group, jobs, isRetried) =>
    submitChunks(group, [jobs], isRetried),
  )

  /** For what changes nothing when it is done again. Within a caller's transaction nothing is retried: it has aborted. */
  const once = async <T>(tx: Transaction | undefined, call: (db: Queryable) => Promise<T>): Promise<T> => {
    if (tx !== undefined) return inTransaction(tx, undefined, call)
    await whenReady()
    return patiently(() => call(pool))
  }

  return {
    async enqueue(task, payload, given: EnqueueOptions = NO_OPTIONS) {
      checkTask(task)
      checkName(task as Task)
      const isPlain = given === NO_OPTIONS
      const {
        shape,
        text: common,
        usual,
      } = isPlain
        ? plainShapeOf(task as Task)
        : readGiven('JOB_INVALID', 'enqueue', () => {
            checkOptions('JOB_INVALID', 'enqueue', given, KNOWN_OF_ENQUEUE)
            return shapeOf(task as Task, given)
          })
      const place = isPlain ? NO_PLACE : toWorkflowPlace(given)
      // As they are at the call: the caller may use the object again.
      const { tx, id: chosen } = given
      const id = chosen === undefined ? newJobId() : toJobId(chosen)
      const isChecked = chosen !== undefined
      const refuseOthers = async (db: Queryable, made: Set<string> | undefined) => {
        const isNew = made === undefined || made.has(id) || !isChecked
        if (!isNew) await refuseOtherTask(db, id, task.name)
        return { id, task: task.name, isNew }
      }
      const send = (payload: string, insertOne: (job: NewJob) => Promise<Set<string> | undefined>) =>
        traceEnqueue(
          trace => insertOne({ id, queue: shape.queue, shape: common, payload, trace, usual, ...place }),
          { name: task.name, queue: shape.queue, jobs: 1, jobId: id },
        )
      const encoded = encodePayload(task as Task, payload, maxPayloadBytes)
      if (tx !== undefined) {
        return inTransaction(tx, encoded, async (db, text) =>
          refuseOthers(db, await send(text, job => enqueueChunks(db, schema, [[job]], { isChecked }))),
        )
      }
      const prepare = async () => {
        const text = await encoded
        await whenReady()
        if (!isLaneKnown(shape)) await knowLanes([shape])
        return text
      }
      const sendAlone = (text: string) => send(text, job => insert([job], { isChecked }))
      const made = await (place.workflow === undefined
        ? sendAlone(await prepare())
        : inCallOrder(place.workflow, prepare(), sendAlone))
      return once(undefined, db => refuseOthers(db, made))
    },

    async enqueueMany<Input, Result>(
      // biome-ignore lint/suspicious/noExplicitAny: as above
      task: Task<Input, any, any, Result>,
      payloads: readonly Input[],
      given: ManyOptions<Input> & InTransaction = NO_OPTIONS,
    ) {
      checkTask(task)
      checkName(task as Task)
      if (!Array.isArray(payloads)) {
        throw new LongshoreError(
          'JOB_INVALID',
          `enqueueMany takes a list of payloads; got ${typeof payloads}`,
        )
      }
      const { tx, drafts } = readGiven('JOB_INVALID', 'enqueueMany', () => ({
        drafts: toManyJobs<Input>(payloads, given, options => shapeOf(task as Task, options)),
        tx: given.tx,
      }))
      const isChecked = drafts.some(job => job.isChosen)
      const how = { isChecked, isWhole: isChecked }
      const send = (payloads: string[], insertAll: (jobs: NewJob[]) => Promise<Set<string> | undefined>) => {
        const jobs = drafts.map(({ id, place, shaped: { shape, text, usual } }, n): NewJob => {
          return { id, queue: shape.queue, shape: text, payload: payloads[n] as string, usual, ...place }
        })
        if (jobs.length === 0) return Promise.resolve(undefined)
        return traceEnqueue(trace => insertAll(withTrace(jobs, trace)), {
          name: task.name,
          queue: queueOf(jobs),
          jobs: jobs.length,
          jobId: jobs.length === 1 ? jobs[0]?.id : undefined,
        })
      }
      const encoded = encodeAll(
        Array.from(payloads, payload => ({ task: task as Task, payload })),
        maxPayloadBytes,
      )
      let made: Set<string> | undefined
      if (tx !== undefined) {
        made = await inTransaction(tx, encoded, (db, texts) =>
          send(texts, jobs => enqueueChunks(db, schema, [...inChunks(jobs)], how)),
        )
      } else {
        const texts = await encoded
        await whenReady()
        await knowLanes(new Set(drafts.map(job => job.shaped.shape)))
        made = await send(texts, jobs => insert(jobs, how))
      }
      // Of an id that was given twice the first made the job.
      return drafts.map(({ id, isChosen }) => ({
        id,
        task: task.name,
        isNew: !isChosen || made === undefined || made.delete(id),
      }))
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

const laneOf = ({ queue, task, tag, constraintTag, concurrencyKey = '' }: Shape) =>
  `${queue}\n${task}\n${tag}\n${constraintTag}\n${concurrencyKey}`

/** Undefined where they go to several. */
const queueOf = (jobs: readonly NewJob[]): string | undefined =>
  new Set(jobs.map(job => job.queue)).size === 1 ? jobs[0]?.queue : undefined

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
