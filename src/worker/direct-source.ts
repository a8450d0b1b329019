/** Jobs directly from Postgres: one call settles and claims, and an idle worker is woken as `wake-up.ts` says. */
import type { Pool } from '../postgres/connect.ts'
import { createLateCommits, readBestBefore, setListening } from '../postgres/register-worker.ts'
import type { WorkerKey } from '../postgres/secret.ts'
import { type Exchange, type Named, type Outcome, settleAndClaim } from '../postgres/settle-and-claim.ts'
import { metLocks } from '../postgres/transient-error.ts'
import type { Logger } from '../runtime/logger.ts'
import { withRetry } from '../runtime/retry.ts'
import { isTracing } from '../runtime/tracing.ts'
import { createWakeUp } from '../runtime/wake-up.ts'
import { createClaimCursor } from './claim-cursor.ts'
import type { JobSource } from './job-source.ts'

export interface DirectSource extends JobSource {
  /** As `exchange`, with everything that Postgres answers. `named`: claim these jobs only. */
  ask(outcomes: readonly Outcome[], limit: number, named?: Named): Promise<Exchange>
  /** Postgres has notified the worker that there may be a job. The text is the job's score, if that is known, see `ring.sql`. */
  onRing(text: string): void
}

/** Postgres has undone a call that met locks of others: mostly the same call gets through now. What is in its way for longer is no matter of moments. */
const AT_ONCE = { maxTries: 3, firstMs: 0, maxMs: 0 }

export function createDirectSource(options: {
  pool: Pool
  schema: string
  worker: WorkerKey
  pollIntervalMs: number
  /** There may be jobs. */
  look: () => void
  /** These groups may be at their end. */
  onGroups: (groups: readonly string[]) => void
  logger: Logger
}): DirectSource {
  const { pool, schema, worker, logger } = options
  const cursor = createClaimCursor()
  let lateCommits = createLateCommits(pool)
  const wakeUp = createWakeUp({
    pollIntervalMs: options.pollIntervalMs,
    async setListening(isListening) {
      await setListening(pool, schema, worker, isListening)
      lateCommits = createLateCommits(pool)
    },
    mayCommitLate: () => lateCommits(),
    look: options.look,
    lookWithinMs: cursor.withinMs,
    onError: error => logger.info({ err: error }, 'could not say whether this worker listens'),
  })

  let isResting = false
  let isLooking = false
  let nextLook: NodeJS.Timeout | undefined
  /** Looks for jobs before the cursor while claims do not begin at the start, beside them. */
  const planLook = () => {
    clearTimeout(nextLook)
    const ms = cursor.lookWithinMs()
    if (ms < Number.POSITIVE_INFINITY && !isLooking && !isResting) nextLook = setTimeout(lookBefore, ms)
  }
  const lookBefore = async () => {
    isLooking = true
    const since = performance.now()
    let best: number | null = null
    try {
      best = await readBestBefore(pool, schema, worker, cursor.beginLook())
    } catch (error) {
      logger.info({ err: error }, 'could not look for jobs before the last claims; looking again soon')
    }
    isLooking = false
    if (cursor.noteLook({ best, ms: performance.now() - since }) && !isResting) options.look()
    planLook()
  }

  const mayGetThrough = (error: unknown) => {
    if (!metLocks(error)) return false
    logger.debug({ err: error }, 'locks of others were in the way of a call; sending it again')
    return true
  }

  const ask = async (outcomes: readonly Outcome[], limit: number, named?: Named): Promise<Exchange> => {
    const isOrdinary = !named && limit > 0
    const from = isOrdinary ? cursor.begin() : null
    const since = performance.now()
    const call = () => settleAndClaim(pool, schema, worker, outcomes, limit, named, isTracing(), from)
    const answer = await withRetry(call, { ...AT_ONCE, isTransient: mayGetThrough })
    if (answer.groups.length > 0) options.onGroups(answer.groups)
    if (!isOrdinary) return answer
    const mayBeMore = cursor.note({
      from,
      isFilled: answer.claimed.length === limit,
      isLimited: answer.wait === 'full' || answer.wait === 'busy',
      worst: answer.claimed.at(-1)?.score,
      ms: performance.now() - since,
    })
    planLook()
    return mayBeMore && answer.wait === null ? { ...answer, wait: 'more' as const } : answer
  }

  return {
    way: 'direct',
    looksForFree: true,
    ask,
    exchange: ask,
    onRing(text) {
      cursor.onReady(text === '' ? null : Number(text))
      planLook()
      wakeUp.onRing()
    },
    onClaimed: wakeUp.onClaimed,
    onIdle: wakeUp.onIdle,
    onFull: wakeUp.onFull,
    onCompleted: () => undefined,
    async rest(isToRest) {
      isResting = isToRest
      planLook()
      await wakeUp.rest(isToRest)
    },
    // The next claim reads them.
    onPropertiesChanged: async () => undefined,
    probe: async () => undefined,
    async close() {
      isResting = true
      clearTimeout(nextLook)
      wakeUp.stop()
    },
  }
}
