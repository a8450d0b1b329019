/**
 * Owns following the logs of jobs while they run. A follower leaves a row in `awaited`; the
 * transaction that stores lines, or settles the job, sees it and notifies the channel of this process. A slow poll covers what gets lost.
 */
import { checkOptions, checkSignal, checkWhole } from '../job/check-options.ts'
import { LongshoreError } from '../job/errors.ts'
import type { JobId } from '../job/job-id.ts'
import type { LogLine } from '../job/job-log.ts'
import type { Queryable } from '../job/queryable.ts'
import { quoted } from '../job/shown.ts'
import { awaitJobs, forgetAwaited } from '../postgres/await-jobs.ts'
import type { Pool } from '../postgres/connect.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { hasEnded, type LinePlace, readLogs } from '../postgres/read-logs.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import { type patient, toUnavailable } from '../postgres/unavailable.ts'
import type { Logger } from '../runtime/logger.ts'
import { createWaiterChannel } from './waiter-channel.ts'

export interface LogPageOptions {
  /** The `id` of a line: those behind it. Default: from the first. */
  after?: string
  /** Lines at most, 1 to 10,000. Default 1000. */
  limit?: number
}

export interface FollowOptions {
  /** Stop following when it fires; the iteration throws its reason. */
  signal?: AbortSignal
}

export interface LogFollower {
  follow(id: JobId, options: FollowOptions): AsyncGenerator<LogLine, void, undefined>
  close(): Promise<void>
}

const MOST_LINES = 10_000
const PAGE = 500
const POLL_MS = 1000
/** Lines are stored beside the end of their run, not before it: so long the last ones are waited for. */
const LAST_LINES_MS = 1000
/** The row that asks to be told is written anew well before it expires. */
const ROW_MS = 10 * 60_000
/** Lines of a run may come after those of a later one, from another worker; of so many runs they are expected. */
const RUNS = 8

export async function readLogPage(
  pool: Queryable,
  schema: string,
  id: JobId,
  options: LogPageOptions,
): Promise<LogLine[]> {
  checkOptions('CONFIG_INVALID', 'getLogs', options, ['after', 'limit'])
  const { after, limit = 1000 } = options
  checkWhole('CONFIG_INVALID', 'limit', limit, 1, MOST_LINES)
  const lines = await readLogs(pool, schema, id, toPlace(after), limit)
  return lines.map(({ line }) => line)
}

function toPlace(after: unknown): LinePlace {
  if (after === undefined) return { leaseToken: '0', seq: 0 }
  const [, leaseToken, seq] = (typeof after === 'string' && /^(\d{1,18})\.(\d{1,9})$/.exec(after)) || []
  if (leaseToken !== undefined) return { leaseToken, seq: Number(seq) }
  throw new LongshoreError(
    'CONFIG_INVALID',
    `after must be the id of a log line, such as lines.at(-1)?.id; got ${quoted(after)}`,
  )
}

export function createLogFollower(options: {
  /** Where notifications come from. */
  listen: PostgresConfig
  pool: Pool
  schema: string
  patiently: ReturnType<typeof patient>
  logger: Logger
}): LogFollower {
  const { pool, schema, logger } = options
  const bells = new Map<string, Set<() => void>>()
  let isClosed = false

  const ringAll = () => {
    for (const followers of bells.values()) for (const ring of followers) ring()
  }

  const channel = createWaiterChannel({
    ...options,
    purpose: 'follows logs',
    onNotify: id => {
      for (const ring of bells.get(id) ?? []) ring()
    },
    onGap: ringAll,
  })
  const { waiter } = channel

  /** The last places seen of the latest runs, in the order of the runs. */
  const createSeen = () => {
    const seen = new Map<string, LinePlace>()
    return {
      add({ leaseToken, seq }: LinePlace) {
        seen.set(leaseToken, { leaseToken, seq })
        if (seen.size <= RUNS) return
        const [oldest] = inOrder(seen.values())
        if (oldest) seen.delete(oldest.leaseToken)
      },
      get places() {
        return inOrder(seen.values())
      },
      /** The beginning of the oldest of them: runs before it log no more. */
      get from() {
        const [oldest] = inOrder(seen.values())
        return { leaseToken: seen.size < RUNS || !oldest ? '0' : oldest.leaseToken, seq: 0 }
      },
    }
  }

  async function* follow(id: JobId, given: FollowOptions): AsyncGenerator<LogLine, void, undefined> {
    checkOptions('CONFIG_INVALID', 'followLogs', given, ['signal'])
    const { signal } = given
    checkSignal(signal)
    signal?.throwIfAborted()
    await channel.open()
    const bell = createBell()
    const followers = bells.get(id) ?? new Set()
    bells.set(id, followers.add(bell.ring))
    signal?.addEventListener('abort', bell.ring)
    const seen = createSeen()
    let askAt = 0
    let isKnown = false
    let endsAt: number | undefined

    /** Asks whether the job has ended before it reads lines: those that were there by then are among them. */
    const look = async () => {
      if (performance.now() >= askAt) {
        await awaitJobs(pool, schema, waiter, [{ id, timeoutMs: ROW_MS }], true)
        askAt = performance.now() + ROW_MS / 4
      }
      const ended = await hasEnded(pool, schema, id)
      return { ended, found: await readLogs(pool, schema, id, seen.from, PAGE, seen.places) }
    }

    try {
      while (endsAt === undefined || performance.now() < endsAt) {
        bell.reset()
        const looked = await look().catch(error => {
          if (!isTransientError(error)) throw toUnavailable(error)
          logger.warn({ err: error }, 'could not look for log lines; trying again')
        })
        if (looked) {
          const { ended, found } = looked
          if (ended === undefined && !isKnown) throw notFound(id, schema)
          isKnown = true
          for (const place of found) {
            seen.add(place)
            yield place.line
          }
          if (ended === false) endsAt = undefined
          else if (endsAt === undefined || found.length > 0) endsAt = performance.now() + LAST_LINES_MS
          if (found.length === PAGE) continue
        }
        await bell.rung(endsAt === undefined ? POLL_MS : Math.max(0, endsAt - performance.now()))
        signal?.throwIfAborted()
        if (isClosed) throw new LongshoreError('PRODUCER_CLOSED', 'the producer was closed')
      }
    } finally {
      signal?.removeEventListener('abort', bell.ring)
      followers.delete(bell.ring)
      if (followers.size === 0) {
        bells.delete(id)
        // A row left behind costs a needless notification now and then, and is removed by the upkeep when it expires.
        await forgetAwaited(pool, schema, waiter, [id]).catch(error =>
          logger.info({ err: error }, 'could not say that a log is not followed any more'),
        )
      }
    }
  }

  return {
    follow,
    async close() {
      isClosed = true
      ringAll()
      await channel.close()
    },
  }
}

/** Remembers a ring until it is waited for. */
function createBell() {
  let isRung = false
  let wake: (() => void) | undefined
  return {
    ring: () => {
      isRung = true
      wake?.()
    },
    reset: () => {
      isRung = false
    },
    rung: async (ms: number) => {
      if (isRung) return
      let timer: NodeJS.Timeout | undefined
      await new Promise<void>(resolve => {
        wake = resolve
        timer = setTimeout(resolve, ms)
      })
      clearTimeout(timer)
    },
  }
}

const inOrder = (places: Iterable<LinePlace>): LinePlace[] =>
  [...places].sort((a, b) => (BigInt(a.leaseToken) < BigInt(b.leaseToken) ? -1 : 1))

const notFound = (id: string, schema: string) =>
  new LongshoreError(
    'JOB_NOT_FOUND',
    `there is no job ${id} in schema "${schema}": its transaction may not have been committed, its history has been dropped, or it is of another service`,
  )
