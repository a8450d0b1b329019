/**
 * The duty of the history and of job logs: partitions made ahead, old ones let go. On the pool, in short
 * steps that each are a transaction of their own, so that neither the lease nor a settle waits for them. How far it is stands in
 * Postgres: the next leader goes on.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'
import type { Duties } from './duties.ts'

export interface History {
  start(): void
  /** Resolves when no step is under way. */
  stop(): Promise<void>
}

const TURN_MS = 10 * 60_000
/** How long a step waits for a lock that stops others: longer with each turn that did not get it. */
const LEAST_WAIT_MS = 10
const MOST_WAIT_MS = 50
/** Until the next turn, where a transaction was in the way: longer with each turn. */
const LEAST_PAUSE_MS = 500
const MOST_PAUSE_MS = 10_000
/** Until the next turn after one that failed. */
const AGAIN_MS = 5000
/** Without a day that should be gone, a transaction in the way is told of only after this. */
const LONG_MS = 10 * 60_000

interface Step {
  is_done: boolean
  held_by: string | null
  behind_days?: number
}

const PREPARE = 'select * from longshore.prepare_history(p_holder => $1, p_secret => $2, p_wait_ms => $3)'
const FORGET = 'select * from longshore.forget_history($1, $2, $3)'
const LOGS =
  'select * from longshore.maintain_log_partitions(p_holder => $1, p_secret => $2, p_wait_ms => $3)'

export function createHistory(options: {
  db: Queryable
  schema: string
  holder: Holder
  duties: Duties
  onError: (error: unknown) => void
}): History {
  const { db, schema, holder, duties } = options
  let isOn = false
  let timer: NodeJS.Timeout | undefined
  let working: Promise<void> = Promise.resolve()
  /** Turns on end in which something was held, and since when. */
  let heldTurns = 0
  let heldSince: number | undefined

  /** Calls it until all is done, or a transaction is in the way. Answers who is. */
  const repeat = async (call: string): Promise<{ heldBy: string; behindDays: number } | undefined> => {
    const waitMs = Math.min(MOST_WAIT_MS, LEAST_WAIT_MS * 2 ** heldTurns)
    while (isOn) {
      const began = performance.now()
      const { rows } = await db.query(inSchema(schema, call), [holder.name, holder.secret, waitMs])
      const step = rows[0] as unknown as Step
      if (step.held_by !== null) return { heldBy: step.held_by, behindDays: step.behind_days ?? 0 }
      if (step.is_done) return undefined
      // As long as it took: half of the time is for others.
      await pause(performance.now() - began)
    }
    return undefined
  }

  const keep = (duty: 'history' | 'logs', calls: readonly string[]) => {
    let isHeld = false
    return duties
      .attempt(duty, async () => {
        const reasons: string[] = []
        for (const call of calls) {
          const held = await repeat(call)
          if (!held) continue
          isHeld = true
          const isLong = heldSince !== undefined && performance.now() - heldSince >= LONG_MS
          if (held.behindDays > 0)
            reasons.push(`the oldest day should have gone ${held.behindDays} days ago: ${held.heldBy}`)
          else if (isLong) reasons.push(held.heldBy)
        }
        return reasons.length > 0 ? reasons.join('; ') : undefined
      })
      .then(() => isHeld)
  }

  const turn = async () => {
    let waitMs = LEAST_PAUSE_MS
    try {
      const isHistoryHeld = await keep('history', [PREPARE, FORGET])
      // Locks on the logs hold up nothing else.
      const areLogsHeld = isOn && (await keep('logs', [LOGS]))
      if (isHistoryHeld || areLogsHeld) {
        heldSince ??= performance.now()
        waitMs = Math.min(MOST_PAUSE_MS, LEAST_PAUSE_MS * 2 ** heldTurns)
        heldTurns++
      } else {
        heldSince = undefined
        heldTurns = 0
        waitMs = duties.isWell('history') && duties.isWell('logs') ? TURN_MS : AGAIN_MS
      }
    } catch (error) {
      options.onError(error)
      waitMs = AGAIN_MS
    }
    if (isOn) timer = setTimeout(begin, waitMs)
  }
  const begin = () => {
    working = working.then(() => (isOn ? turn() : undefined))
  }

  return {
    start() {
      if (isOn) return
      isOn = true
      begin()
    },
    stop() {
      isOn = false
      clearTimeout(timer)
      return working
    },
  }
}
