/**
 * Owns waiting for the end of jobs. A wait leaves a row in `awaited`; settle sees it and tells this process through one
 * notification channel of its own. A settle that looked for rows just before this one was there is caught by a second
 * look; a slow poll covers what else may get lost. Rows and looks of many waits travel together.
 */
import { randomBytes } from 'node:crypto'
import { checkOptions } from '../job/check-options.ts'
import { type Duration, toTimerMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import type { FinishedJob } from '../job/job.ts'
import type { JobId } from '../job/job-id.ts'
import { awaitJobs, forgetAwaited } from '../postgres/await-jobs.ts'
import type { Pool } from '../postgres/connect.ts'
import { type Listener, openListener } from '../postgres/listener.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { readFinishedJobs, readJobs } from '../postgres/read-jobs.ts'
import { channelName } from '../postgres/schema-name.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import type { Logger } from '../runtime/logger.ts'
import { naturalBatch } from '../runtime/natural-batch.ts'

export interface WaitOptions {
  /** How long to wait. Default `'30s'`. */
  timeout?: Duration
  /** Stop waiting when it fires. */
  signal?: AbortSignal
}

export interface JobWaiter {
  wait(id: JobId, options: WaitOptions): Promise<FinishedJob>
  close(): Promise<void>
}

/** A settle's commit takes a few milliseconds: it cannot be missed by both looks. */
const SECOND_LOOK_MS = 50
const POLL_MS = 1000
const MOST_AT_ONCE = 1000

interface Wait {
  timeoutMs: number
  resolve: (job: FinishedJob) => void
  reject: (error: unknown) => void
}

export function createJobWaiter(options: {
  postgres: PostgresConfig
  pool: Pool
  schema: string
  logger: Logger
}): JobWaiter {
  const { pool, schema, logger } = options
  const waiter = randomBytes(8).readBigUInt64BE().toString(36).slice(0, 11)
  const waits = new Map<JobId, Set<Wait>>()
  let listener: Promise<Listener> | undefined
  let poll: NodeJS.Timeout | undefined

  const fail = (ids: Iterable<JobId>, error: unknown) => {
    for (const id of ids) for (const wait of waits.get(id) ?? []) wait.reject(error)
  }

  const looks = naturalBatch<JobId>({
    inFlight: 1,
    maxItems: MOST_AT_ONCE,
    send: async given => {
      const ids = [...new Set(given)].filter(id => waits.has(id))
      if (ids.length === 0) return
      try {
        for (const job of await readFinishedJobs(pool, schema, ids)) {
          for (const wait of waits.get(job.id) ?? []) wait.resolve(job)
        }
      } catch (error) {
        // The next poll looks again.
        if (isTransientError(error))
          logger.warn({ err: error }, 'could not look for finished jobs; trying again')
        else fail(ids, error)
      }
    },
  })

  /** Brings the rows in line with the waits: written for what is waited for, removed for what is not any more. */
  const rows = naturalBatch<JobId>({
    inFlight: 1,
    maxItems: MOST_AT_ONCE,
    send: async given => {
      const ids = [...new Set(given)]
      const awaited = ids.filter(id => waits.has(id))
      try {
        const longestMs = (id: JobId) =>
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
        if (!isTransientError(error)) return fail(awaited, error)
        logger.warn({ err: error }, 'could not ask to be told of finished jobs; polling for them')
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

  const open = () => {
    listener ??= openListener({
      postgres: options.postgres,
      channels: [channelName(schema, `waiter_${waiter}`)],
      onNotify: (_, id) => looks.add(id as JobId),
      onGap: lookAtAll,
      onError: error =>
        logger.warn({ err: error }, 'the connection that waits for results broke; reconnecting'),
    }).catch(error => {
      listener = undefined
      throw error
    })
    return listener
  }

  const timedOut = async (id: JobId, timeoutMs: number) => {
    const [job] = await readJobs(pool, schema, [id])
    const found = job
      ? `it is ${job.state}`
      : 'no job with this id is known (or its history has been dropped)'
    return new LongshoreError('WAIT_TIMEOUT', `job ${id} has not ended after ${timeoutMs} ms: ${found}`)
  }

  return {
    async wait(id, wanted) {
      checkOptions('CONFIG_INVALID', 'waitFor', wanted, ['timeout', 'signal'])
      const { timeout = '30s', signal } = wanted
      const timeoutMs = toTimerMs(timeout, 'timeout')
      signal?.throwIfAborted()
      await open()

      const together = waits.get(id) ?? new Set()
      waits.set(id, together)
      poll ??= setInterval(lookAtAll, POLL_MS)
      let wait: Wait | undefined
      let timer: NodeJS.Timeout | undefined
      let onAbort: (() => void) | undefined
      try {
        return await new Promise<FinishedJob>((resolve, reject) => {
          wait = { timeoutMs, resolve, reject }
          together.add(wait)
          timer = setTimeout(() => timedOut(id, timeoutMs).then(reject, reject), timeoutMs)
          onAbort = () => reject(signal?.reason)
          signal?.addEventListener('abort', onAbort)
          rows.add(id)
        })
      } finally {
        clearTimeout(timer)
        if (onAbort) signal?.removeEventListener('abort', onAbort)
        if (wait) together.delete(wait)
        if (together.size === 0) {
          waits.delete(id)
          rows.add(id)
        }
        if (waits.size === 0) {
          clearInterval(poll)
          poll = undefined
        }
      }
    },

    async close() {
      fail(waits.keys(), new LongshoreError('PRODUCER_CLOSED', 'the producer was closed'))
      await new Promise(resolve => setImmediate(resolve)) // the waits above take themselves off the list
      await rows.idle()
      await looks.idle()
      await listener?.then(opened => opened.close())
    },
  }
}
