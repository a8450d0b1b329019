/**
 * Owns waiting for the end of a job. A waiter leaves a row in `awaited`; settle sees it and tells this process through
 * one notification channel of its own. A settle that looked for waiters just before the row was there is caught by a
 * second look; a slow poll covers what else may get lost.
 */
import { randomBytes } from 'node:crypto'
import { type Duration, toMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import type { FinishedJob } from '../job/job.ts'
import type { JobId } from '../job/job-id.ts'
import { awaitJob, forgetAwaited } from '../postgres/await-jobs.ts'
import type { Pool, PostgresConfig } from '../postgres/connect.ts'
import { type Listener, openListener } from '../postgres/listener.ts'
import { readFinishedJobs, readJobs } from '../postgres/read-jobs.ts'
import { channelName } from '../postgres/schema-name.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import type { Logger } from '../runtime/logger.ts'

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
const MOST_IN_ONE_LOOK = 1000

interface Waiting {
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
  const waiting = new Map<JobId, Set<Waiting>>()
  let listener: Promise<Listener> | undefined
  let poll: NodeJS.Timeout | undefined

  const look = async (ids: JobId[]) => {
    for (let at = 0; at < ids.length; at += MOST_IN_ONE_LOOK) {
      const jobs = await readFinishedJobs(pool, schema, ids.slice(at, at + MOST_IN_ONE_LOOK))
      for (const job of jobs) {
        for (const entry of waiting.get(job.id) ?? []) entry.resolve(job)
      }
    }
  }

  /** Looks are made on events; what one of them misses the next poll sees. */
  const lookSoon = (ids: JobId[]) => {
    look(ids).catch(error => {
      if (isTransientError(error))
        logger.warn({ err: error }, 'could not look for finished jobs; trying again')
      else for (const id of ids) for (const entry of waiting.get(id) ?? []) entry.reject(error)
    })
  }

  const lookAtAll = () => lookSoon([...waiting.keys()])

  const open = () => {
    poll ??= setInterval(lookAtAll, POLL_MS)
    listener ??= openListener({
      postgres: options.postgres,
      channels: [channelName(schema, `waiter_${waiter}`)],
      onNotify: (_, id) => lookSoon([id as JobId]),
      onGap: lookAtAll,
      onError: error =>
        logger.warn({ err: error }, 'the connection that waits for results broke; reconnecting'),
    }).catch(error => {
      listener = undefined
      throw error
    })
    return listener
  }

  const describe = async (id: JobId, timeoutMs: number) => {
    const [job] = await readJobs(pool, schema, [id])
    const found = job
      ? `it is ${job.state}`
      : 'no job with this id is known (or its history has been dropped)'
    return new LongshoreError('WAIT_TIMEOUT', `job ${id} has not ended after ${timeoutMs} ms: ${found}`)
  }

  return {
    async wait(id, { timeout = '30s', signal }) {
      const timeoutMs = toMs(timeout, 'timeout')
      signal?.throwIfAborted()
      await open()
      await awaitJob(pool, schema, { id, waiter, timeoutMs })

      const entries = waiting.get(id) ?? new Set()
      waiting.set(id, entries)
      let entry: Waiting | undefined
      let timer: NodeJS.Timeout | undefined
      let secondLook: NodeJS.Timeout | undefined
      let onAbort: (() => void) | undefined
      try {
        return await new Promise<FinishedJob>((resolve, reject) => {
          entry = { resolve, reject }
          entries.add(entry)
          timer = setTimeout(() => describe(id, timeoutMs).then(reject, reject), timeoutMs)
          secondLook = setTimeout(() => lookSoon([id]), SECOND_LOOK_MS)
          onAbort = () => reject(signal?.reason)
          signal?.addEventListener('abort', onAbort)
          lookSoon([id])
        })
      } finally {
        clearTimeout(timer)
        clearTimeout(secondLook)
        if (onAbort) signal?.removeEventListener('abort', onAbort)
        if (entry) entries.delete(entry)
        if (entries.size === 0) {
          waiting.delete(id)
          // A row left behind costs one needless notification and is removed by the upkeep when it expires.
          await forgetAwaited(pool, schema, id, waiter).catch(error =>
            logger.warn({ err: error }, 'could not say that nobody waits any more'),
          )
        }
        if (waiting.size === 0) {
          clearInterval(poll)
          poll = undefined
        }
      }
    },

    async close() {
      clearInterval(poll)
      for (const entries of waiting.values()) {
        for (const entry of entries)
          entry.reject(new LongshoreError('PRODUCER_CLOSED', 'the producer was closed'))
      }
      await listener?.then(open => open.close())
    },
  }
}
