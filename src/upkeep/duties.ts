/**
 * Owns what becomes of a duty that fails: the others go on, the log tells of it once, then once a minute and when it is over, and a row in
 * Postgres tells every process, see `note_duty.sql`.
 */
import type { Queryable } from '../job/queryable.ts'
import { messageOf } from '../job/stored-error.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'
import { isAway, isTransientError } from '../postgres/transient-error.ts'
import type { Logger } from '../runtime/logger.ts'
import { createOutage, type Outage } from '../runtime/outage.ts'
import { isNotLeader } from './lead.ts'

const DUTIES = [
  'due jobs',
  'rescue',
  'groups',
  'stuck groups',
  'limits',
  'renewal of limits',
  'unused limits',
  'unused lanes',
  'dispatch',
  'history',
  'logs',
  'expired waits',
] as const
export type Duty = (typeof DUTIES)[number]

export interface Duties {
  /** A new term: what the leader before has noted holds until its duty is done. */
  begin(): Promise<void>
  /**
   * Does it. What it throws is told of here, unless Postgres is away or another process leads. A text that it answers is why it cannot be
   * done, although nothing is broken.
   */
  attempt(duty: Duty, work: () => Promise<string | undefined> | Promise<void>): Promise<void>
  /** Whether it was done when it was last attempted. */
  isWell(duty: Duty): boolean
}

/** Locks of others, a deadlock or a slow moment: only what lasts is told. */
const PATIENCE_MS = 10_000
const LONGEST_REASON = 1000

export function createDuties(db: Queryable, schema: string, holder: Holder, logger: Logger): Duties {
  const outages = new Map<Duty, Outage>()
  const failingSince = new Map<Duty, number>()
  /** What Postgres knows. */
  let noted = new Map<string, string>()

  const note = async (duty: string, error: string | null) => {
    await db.query(inSchema(schema, 'select longshore.note_duty($1, $2, $3, $4)'), [
      duty,
      error,
      holder.name,
      holder.secret,
    ])
    if (error === null) noted.delete(duty)
    else noted.set(duty, error)
  }

  const outageOf = (duty: Duty) => {
    const outage =
      outages.get(duty) ??
      createOutage(
        logger,
        `upkeep: the duty "${duty}" fails, the others go on; it is tried again`,
        `upkeep: the duty "${duty}" is done again`,
      )
    outages.set(duty, outage)
    return outage
  }

  const succeeds = async (duty: Duty) => {
    failingSince.delete(duty)
    outages.get(duty)?.works()
    if (noted.has(duty)) await note(duty, null)
  }

  const fails = async (duty: Duty, error: unknown, reason: string) => {
    const since = failingSince.get(duty) ?? performance.now()
    failingSince.set(duty, since)
    if (isTransientError(error) && performance.now() - since < PATIENCE_MS) {
      logger.debug({ err: error, duty }, 'upkeep: a duty could not be done; it is tried again')
      return
    }
    outageOf(duty).failed(error)
    if (noted.get(duty) !== reason) await note(duty, reason)
  }

  return {
    async begin() {
      const { rows } = await db.query(inSchema(schema, 'select name, error from longshore.duties'))
      noted = new Map(rows.map(row => [String(row['name']), String(row['error'])]))
      // Of another version.
      for (const name of noted.keys()) if (!DUTIES.some(duty => duty === name)) await note(name, null)
    },
    async attempt(duty, work) {
      let why: unknown
      try {
        why = await work()
      } catch (error) {
        if (isNotLeader(error) || (error instanceof Error && isAway(error))) throw error
        return fails(duty, error, (messageOf(error) || String(error)).slice(0, LONGEST_REASON))
      }
      if (typeof why !== 'string') await succeeds(duty)
      else await fails(duty, new Error(why), why.slice(0, LONGEST_REASON))
    },
    isWell: duty => !failingSince.has(duty),
  }
}
