/**
 * The duty of the watchdog: looks for groups that do not move although they could, see `watch_groups.sql`. What it has seen is
 * kept in Postgres, so the next leader goes on with it. On the pool, in short pages: a look never delays the lease. Between two pages it
 * rests for nine times as long as the last one took, so that very many groups cost a tenth of a connection, and are looked at less often.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Duties } from './duties.ts'

/** In one transaction. */
const PAGE_GROUPS = 200
const PAGE_JOBS = 20_000
const START = '00000000-0000-0000-0000-000000000000'

/** Looks in the time after which a group is reported. */
const LOOKS = 10
const LEAST_MS = 250
const MOST_MS = 60_000
const REST = 9

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
  attempt: Duties['attempt']
  onError: (error: unknown) => void
  logger: Logger
}): Watchdog {
  const { db, schema, holder, logger } = options
  let isOn = false
  let since = 0
  let timer: NodeJS.Timeout | undefined
  let looking: Promise<void> = Promise.resolve()
  let stopping = new AbortController()
  /** When the last look at all began; before the first one nothing is known of how long ago others looked. */
  let lastBegan: number | undefined

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
    const began = performance.now()
    for (let after: string | null = START; after !== null && isOn; ) {
      const pageBegan = performance.now()
      const betweenMs = lastBegan === undefined ? Number.MAX_SAFE_INTEGER : Math.ceil(pageBegan - lastBegan)
      const { rows } = await db.query(
        inSchema(
          schema,
          'select last, stuck, report from longshore.watch_groups($1, $2, $3, $4, $5, $6, $7)',
        ),
        [after, PAGE_GROUPS, PAGE_JOBS, Math.floor(pageBegan - since), holder.name, holder.secret, betweenMs],
      )
      const page = rows[0] as { last: string | null; stuck: number; report: Report | null }
      stuck += page.stuck
      if (page.report) tell(page.report)
      after = page.last
      const restMs = REST * (performance.now() - pageBegan)
      if (after !== null) await pause(restMs, undefined, { signal: stopping.signal }).catch(() => undefined) // it is to stop
    }
    if (!isOn) return
    lastBegan = began
    options.onLook?.(stuck)
  }

  const look = async () => {
    let waitMs = MOST_MS
    try {
      await options.attempt('stuck groups', async () => {
        const { rows } = await db.query(inSchema(schema, 'select watchdog_ms from longshore.settings'))
        waitMs = Math.max(LEAST_MS, Math.min(MOST_MS, Number(rows[0]?.['watchdog_ms']) / LOOKS))
        await lookAtAll()
      })
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
      stopping = new AbortController()
      lastBegan = undefined
      since = performance.now()
      begin()
    },
    stop() {
      isOn = false
      stopping.abort()
      clearTimeout(timer)
      options.onLook?.(0)
      return looking
    },
  }
}
