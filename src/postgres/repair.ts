/**
 * The verb *repair*: mends one finding of the doctor. Each is one small transaction that takes its locks in the usual
 * order, looks again under them, and may be repeated; see `migrations/functions/repair/`.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Queryable } from '../job/queryable.ts'
import type { RepairKind } from './questions.ts'
import { inSchema } from './schema-name.ts'
import { isTransientError } from './transient-error.ts'

export interface Repaired {
  isDone: boolean
  /** What was done, or why nothing was. */
  said: string
}

/** Statements of (is_done, said); the subject of the finding is the parameter. */
const REPAIRS: Readonly<Record<RepairKind | 'redis', string>> = {
  cancel: `
    select c.answer = 'cancelled' as is_done, 'it is ' || c.answer as said from longshore.cancel(array[$1::uuid]) c`,
  due: `
    select p.promoted > 0 as is_done, format('%s due jobs were made ready', p.promoted) as said
    from longshore.promote_due(10000) p where $1::text is not null`,
  group: 'select is_done, said from longshore.repair_group($1::uuid)',
  head: 'select is_done, said from longshore.repair_head($1::int)',
  lease: 'select is_done, said from longshore.repair_lease($1::int)',
  limit: 'select r.is_done, r.said from longshore.repair_limit($1::json ->> 0, $1::json ->> 1) r',
  redis: `
    select true as is_done, 'the relay reads it again' as said from longshore.note_changes(array[$1::uuid])`,
  'slots of no limit': `
    with gone as (
      delete from longshore.slot_groups g
      where g.limit_id = $1::int and not exists (select from longshore.limits k where k.id = g.limit_id) returning 1
    )
    select count(*) > 0 as is_done, 'its slot groups were removed' as said from gone`,
  waiting: 'select is_done, said from longshore.repair_waiting($1::uuid)',
  workflow: `
    select true as is_done, 'it was removed' as said
    from longshore.pass_on('{}', '{}', array[$1::bigint])`,
}

/** So many tries where another transaction blocks the repair. */
const TRIES = 3
const BETWEEN_MS = 200

export async function repair(
  db: Queryable,
  schema: string,
  kind: keyof typeof REPAIRS,
  subject: string,
): Promise<Repaired> {
  for (let left = TRIES - 1; ; left--) {
    try {
      const { rows } = await db.query(inSchema(schema, REPAIRS[kind]), [subject])
      return {
        isDone: rows[0]?.['is_done'] === true,
        said: String(rows[0]?.['said'] ?? 'nothing was left to do'),
      }
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      if (!isTransientError(error)) return { isDone: false, said: `Postgres refuses to: ${why}` }
      if (left === 0) return { isDone: false, said: `somebody is in the way, try again: ${why}` }
      await pause(BETWEEN_MS)
    }
  }
}
