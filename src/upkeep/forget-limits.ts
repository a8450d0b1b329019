/**
 * The duty of limits that are not used any more: those of concurrency keys that no job has had for an hour or more are forgotten, see
 * `forget_limits.sql`, and so are lanes that claims are told of for nothing, see `forget_heads.sql`. A page of each in a turn.
 */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'

/** When all has been looked at. */
const REST_MS = 60_000

export function createLimitForgetting(
  db: Queryable,
  schema: string,
  { name, secret }: Holder,
): () => Promise<void> {
  let limitsAt = 0
  let headsAt = 0
  let after = '0'

  const forgetLimits = async () => {
    const { rows } = await db.query(
      inSchema(schema, 'select is_done from longshore.forget_limits(p_holder => $1, p_secret => $2)'),
      [name, secret],
    )
    if (rows[0]?.['is_done']) limitsAt = performance.now() + REST_MS
  }

  const forgetHeads = async () => {
    const { rows } = await db.query(
      inSchema(schema, 'select longshore.forget_heads($1, $2, $3)::text as last'),
      [after, name, secret],
    )
    const last = rows[0]?.['last'] as string | null | undefined
    after = last ?? '0'
    if (last === null) headsAt = performance.now() + REST_MS
  }

  return async () => {
    const now = performance.now()
    if (now >= limitsAt) await forgetLimits()
    if (now >= headsAt) await forgetHeads()
  }
}
