/**
 * Owns waiting for the end of jobs and of groups. A wait leaves a row in `awaited`; settle sees it and tells this process through one
 * notification channel of its own. A settle that looked for rows just before this one was there is caught by a second
 * look; a slow poll covers what else may get lost. Rows and looks of many waits travel together.
 */
import { checkOptions, checkSignal } from '../job/check-options.ts'
import { type Duration, toTimerMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import type { FinishedGroup, GroupEvent } from '../job/group.ts'
import type { FinishedJob } from '../job/job.ts'
import type { JobId } from '../job/job-id.ts'
import { messageOf } from '../job/stored-error.ts'
import { awaitJobs, forgetAwaited } from '../postgres/await-jobs.ts'
import type { Pool } from '../postgres/connect.ts'
import { explainJob } from '../postgres/explain-job.ts'
import { readFinishedGroups, readGroups } from '../postgres/groups.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { readFinishedJobs } from '../postgres/read-jobs.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import { type patient, toUnavailable } from '../postgres/unavailable.ts'
import type { Logger } from '../runtime/logger.ts'
import { naturalBatch } from '../runtime/natural-batch.ts'
import { createWaiterChannel } from './waiter-channel.ts'

export interface WaitOptions {
  /** How long to wait. Default `'30s'`. */
  timeout?: Duration
  /** Stop waiting when it fires. */
  signal?: AbortSignal
}

export interface Waiter {
  waitForJob(id: JobId, options: WaitOptions): Promise<FinishedJob>
  waitForGroup(id: string, options: WaitOptions): Promise<FinishedGroup>
  /** Calls back with what becomes of every group, until the function that is returned is called. */
  watchGroups(onEvent: (event: GroupEvent) => void): Promise<() => void>
  close(): Promise<void>
}

type Awaited = 'job' | 'group'

/** A settle's commit takes a few milliseconds: it cannot be missed by both looks. */
const SECOND_LOOK_MS = 50
const POLL_MS = 1000
const MOST_AT_ONCE = 1000

/** A process that watches all groups has a row without a job; it is written anew well before it expires. */
const EVERY_GROUP = '00000000-0000-0000-0000-000000000000'
const WATCH_MS = 10 * 60_000

interface Wait {
  what: Awaited
  timeoutMs: number
  resolve: (ended: FinishedJob | FinishedGroup) => void
  reject: (error: unknown) => void
}

export function createWaiter(options: {
  /** Where notifications come from. */
  listen: PostgresConfig
  pool: Pool
  schema: string
  patiently: ReturnType<typeof patient>
  logger: Logger
}): Waiter {
  const { pool, schema, logger } = options
  /** By id; a job and a group may have the same. */
  const waits = new Map<string, Set<Wait>>()
  const watchers = new Set<(event: GroupEvent) => void>()
  let watching: NodeJS.Timeout | undefined
  let poll: NodeJS.Timeout | undefined

  const waitsFor = (what: Awaited, id: string) =>
    [...(waits.get(id) ?? [])].filter(wait => wait.what === what)

  const fail = (ids: Iterable<string>, error: unknown) => {
    for (const id of ids) for (const wait of waits.get(id) ?? []) wait.reject(error)
  }

  const looks = naturalBatch<string>({
    inFlight: 1,
    maxItems: MOST_AT_ONCE,
    send: async given => {
      const ids = [...new Set(given)].filter(id => waits.has(id))
      if (ids.length === 0) return
      try {
        const waitedFor = (what: Awaited) => ids.filter(id => waitsFor(what, id).length > 0)
        const [jobs, groups] = [waitedFor('job') as JobId[], waitedFor('group')]
        const [endedJobs, endedGroups] = [
          jobs.length > 0 ? await readFinishedJobs(pool, schema, jobs) : [],
          groups.length > 0 ? await readFinishedGroups(pool, schema, groups) : [],
        ]
        for (const job of endedJobs) for (const wait of waitsFor('job', job.id)) wait.resolve(job)
        for (const group of endedGroups) for (const wait of waitsFor('group', group.id)) wait.resolve(group)
      } catch (error) {
        // The next poll looks again.
        if (isTransientError(error))
          logger.warn({ err: error }, 'could not look for what has ended; trying again')
        else fail(ids, toUnavailable(error))
      }
    },
  })

  /** Brings the rows in line with the waits: written for what is waited for, removed for what is not any more. */
  const rows = naturalBatch<string>({
    inFlight: 1,
    maxItems: MOST_AT_ONCE,
    send: async given => {
      const ids = [...new Set(given)]
      const awaited = ids.filter(id => waits.has(id))
      try {
        const longestMs = (id: string) =>
          Math.max(0, ...[...(waits.get(id) ?? [])].map(wait => wait.timeoutMs))
        await awaitJobs(
          pool,
          schema,
          waiter,
          awaited.map(id => ({ id, timeoutMs: longestMs(id) })),
        )
        // A row left behind costs one needless notification and is removed by the upkeep when it expires.
        await forgetAwaited(
          pool,
          schema,
          waiter,
          ids.filter(id => !waits.has(id)),
        )
      } catch (error) {
        if (!isTransientError(error)) return fail(awaited, toUnavailable(error))
        logger.warn({ err: error }, 'could not ask to be told of what ends; polling for it')
      }
      for (const id of awaited) looks.add(id)
      if (awaited.length === 0) return
      const secondLook = setTimeout(() => {
        for (const id of awaited) looks.add(id)
      }, SECOND_LOOK_MS)
      secondLook.unref()
    },
  })

  const lookAtAll = () => {
    for (const id of waits.keys()) looks.add(id)
  }

  /** What a user's function throws must end neither the connection nor the process. */
  const tell = (watcher: (event: GroupEvent) => void, event: GroupEvent) => {
    try {
      watcher(event)
    } catch (error) {
      logger.error({ err: error, group: event.id }, 'a function that watches groups threw')
    }
  }

  const channel = createWaiterChannel({
    ...options,
    purpose: 'waits for results',
    onNotify: text => {
      const [id = '', event] = text.split(' ')
      if (event === undefined) looks.add(id)
      else for (const watcher of watchers) tell(watcher, { id, event: event as GroupEvent['event'] })
    },
    onGap: lookAtAll,
  })
  const { waiter } = channel

  const timedOut = async (what: Awaited, id: string, timeoutMs: number) => {
    const late = (found: string, options?: { cause: unknown }) =>
      new LongshoreError(
        'WAIT_TIMEOUT',
        `${what} ${id} has not ended after ${timeoutMs} ms: ${found}`,
        options,
      )
    try {
      const known = what === 'job' ? await whereJobIs(id as JobId) : await whereGroupIs(id)
      return late(
        known ??
          `no ${what} with this id is known: its transaction may not have been committed, its history has been dropped, or it is of another service`,
      )
    } catch (cause) {
      return late(`and Postgres cannot be asked about it: ${messageOf(cause)}`, { cause })
    }
  }

  const whereJobIs = async (id: JobId) => {
    const found = await explainJob(pool, schema, id)
    return found && `it is ${found.state}: ${found.reasons.map(({ sentence }) => sentence).join('; ')}`
  }

  const whereGroupIs = async (id: string) => {
    const [found] = await readGroups(pool, schema, [id])
    const stuck = found?.stuck?.jobs[0]
    const why = stuck ? `job ${stuck.id} ${stuck.reason}; ` : ''
    return found && `it is ${found.state}: ${why}\`longshore groups ${id}\` tells what its jobs wait for`
  }

  const watch = async () => {
    await awaitJobs(pool, schema, waiter, [{ id: EVERY_GROUP, timeoutMs: WATCH_MS }])
  }

  const wait = async (what: Awaited, id: string, wanted: WaitOptions) => {
    checkOptions('CONFIG_INVALID', what === 'job' ? 'waitFor' : 'waitForGroup', wanted, ['timeout', 'signal'])
    const { timeout = '30s', signal } = wanted
    const timeoutMs = toTimerMs(timeout, 'timeout')
    checkSignal(signal)
    signal?.throwIfAborted()
    await channel.open()

    const together = waits.get(id) ?? new Set<Wait>()
    waits.set(id, together)
    poll ??= setInterval(lookAtAll, POLL_MS)
    let own: Wait | undefined
    let timer: NodeJS.Timeout | undefined
    let onAbort: (() => void) | undefined
    try {
      return await new Promise<FinishedJob | FinishedGroup>((resolve, reject) => {
        own = { what, timeoutMs, resolve, reject }
        together.add(own)
        timer = setTimeout(() => timedOut(what, id, timeoutMs).then(reject, reject), timeoutMs)
        onAbort = () => reject(signal?.reason)
        signal?.addEventListener('abort', onAbort)
        rows.add(id)
      })
    } finally {
      clearTimeout(timer)
      if (onAbort) signal?.removeEventListener('abort', onAbort)
      if (own) together.delete(own)
      if (together.size === 0) {
        waits.delete(id)
        rows.add(id)
      }
      if (waits.size === 0) {
        clearInterval(poll)
        poll = undefined
      }
    }
  }

  return {
    waitForJob: (id, wanted) => wait('job', id, wanted) as Promise<FinishedJob>,
    waitForGroup: (id, wanted) => wait('group', id, wanted) as Promise<FinishedGroup>,

    async watchGroups(onEvent) {
      await channel.open()
      await options.patiently(watch)
      watchers.add(onEvent)
      watching ??= setInterval(
        () =>
          watch().catch(error =>
            logger.warn({ err: error }, 'could not ask to be told of groups; trying again'),
          ),
        WATCH_MS / 4,
      ).unref()
      return () => {
        watchers.delete(onEvent)
        if (watchers.size > 0) return
        clearInterval(watching)
        watching = undefined
      }
    },

    async close() {
      clearInterval(watching)
      if (watchers.size > 0)
        await forgetAwaited(pool, schema, waiter, [EVERY_GROUP]).catch(error =>
          logger.info({ err: error }, 'could not say that groups are not watched any more'),
        )
      watchers.clear()
      fail(waits.keys(), new LongshoreError('PRODUCER_CLOSED', 'the producer was closed'))
      await new Promise(resolve => setImmediate(resolve)) // the waits above take themselves off the list
      await rows.idle()
      await looks.idle()
      await channel.close()
    },
  }
}
