/**
 * The duty of the watchdog: looks for groups that do not move although they could, see `watch_groups.sql`. What it has seen is
 * kept in Postgres, so the next leader goes on with it. On the pool, in short pages: a look never delays the lease.
 */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'
import type { Logger } from '../runtime/logger.ts'

/** In one transaction. */
const PAGE_GROUPS = 200
const PAGE_JOBS = 20_000
const START = '00000000-0000-0000-0000-000000000000'

/** Looks in the time after which a group is reported. */
const LOOKS = 10
const LEAST_MS = 250
const MOST_MS = 60_000

export interface Watchdog {
  start(): void
  /** Resolves when no look is under way. */
  stop(): Promise<void>
}

interface Report extends Record<string, unknown> {
  isNew: boolean
  cancel?: string
}

export function createWatchdog(options: {
  db: Queryable
  schema: string
  holder: Holder
  /** How many groups are stuck, after each look; 0 when it stops. */
  onLook?: (stuck: number) => void
  onError: (error: unknown) => void
  logger: Logger
}): Watchdog {
  const { db, schema, holder, logger } = options
  let isOn = false
  let since = 0
  let timer: NodeJS.Timeout | undefined
  let looking: Promise<void> = Promise.resolve()

  const tell = ({ isNew, cancel, ...known }: Report) => {
    if (isNew) logger.warn(known, 'a group does not move although it could: see what its jobs wait for')
    if (cancel !== undefined)
      logger.warn(
        { id: known['id'], name: known['name'], cancel },
        'the watchdog has cancelled a stuck group',
      )
  }

  const lookAtAll = async () => {
    let stuck = 0
    for (let after: string | null = START; after !== null && isOn; ) {
      const { rows } = await db.query(
        inSchema(schema, 'select last, stuck, report from longshore.watch_groups($1, $2, $3, $4, $5, $6)'),
        [after, PAGE_GROUPS, PAGE_JOBS, Math.floor(performance.now() - since), holder.name, holder.secret],
      )
      const page = rows[0] as { last: string | null; stuck: number; report: Report | null }
      stuck += page.stuck
      if (page.report) tell(page.report)
      after = page.last
    }
    if (isOn) options.onLook?.(stuck)
  }

  const look = async () => {
    let waitMs = MOST_MS
    try {
      const { rows } = await db.query(inSchema(schema, 'select watchdog_ms from longshore.settings'))
      waitMs = Math.max(LEAST_MS, Math.min(MOST_MS, Number(rows[0]?.['watchdog_ms']) / LOOKS))
      await lookAtAll()
    } catch (error) {
      options.onError(error)
    }
    if (isOn) timer = setTimeout(begin, waitMs)
  }
  const begin = () => {
    looking = looking.then(() => (isOn ? look() : undefined))
  }

  return {
    start() {
      if (isOn) return
      isOn = true
      since = performance.now()
      begin()
    },
    stop() {
      isOn = false
      clearTimeout(timer)
      options.onLook?.(0)
      return looking
    },
  }
}
