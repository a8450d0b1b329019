/** The duty of groups: closes those whose last job has ended and that no worker has closed, see `sweep_groups.sql`. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'

/** Groups looked at in one statement. */
const PAGE = 1000
/** One call looks at pages for so long; the next goes on behind them. The duty is called each second, so it takes a tenth of the time. */
const ENOUGH_MS = 100
const START = '00000000-0000-0000-0000-000000000000'

export function createGroupSweep(
  db: Queryable,
  schema: string,
  holder: Holder,
  now: () => number = () => performance.now(),
): () => Promise<void> {
  let after = START
  return async () => {
    const from = now()
    do {
      const { rows } = await db.query(
        inSchema(schema, 'select longshore.sweep_groups($1, $2, $3, $4) as last'),
        [after, PAGE, holder.name, holder.secret],
      )
      after = (rows[0]?.['last'] as string | null | undefined) ?? START
    } while (after !== START && now() - from < ENOUGH_MS)
  }
}
