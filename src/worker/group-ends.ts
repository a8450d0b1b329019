/**
 * Writes the ends of groups. Whether a group has ended is seen only after the commit of what ended its last jobs, so settle and
 * complete name those that may have. The upkeep finds what is missed here.
 */
import type { Pool } from '../postgres/connect.ts'
import { closeGroups } from '../postgres/groups.ts'
import type { Logger } from '../runtime/logger.ts'
import { type NaturalBatch, naturalBatch } from '../runtime/natural-batch.ts'

const MOST_GROUPS = 1000

export const createGroupEnds = (pool: Pool, schema: string, logger: Logger): NaturalBatch<string> =>
  naturalBatch<string>({
    inFlight: 1,
    maxItems: MOST_GROUPS,
    send: groups =>
      closeGroups(pool, schema, [...new Set(groups)]).catch(error =>
        logger.info({ err: error }, 'could not write the end of groups; the upkeep does'),
      ),
  })
