/** A relay whose steps are taken by hand. Whatever a test likes may happen between its look at Postgres and its steps in Redis. */
import { pino } from 'pino'
import type { Pool } from '../../src/postgres/connect.ts'
import { setDispatch } from '../../src/postgres/relay-reads.ts'
import { newSecret } from '../../src/postgres/secret.ts'
import type { RedisStore } from '../../src/redis/open-redis.ts'
import type { Spread } from '../../src/redis/queue-index.ts'
import { createRelayTerm, type RelayTerm } from '../../src/relay/relay-term.ts'
import { lead } from '../../src/upkeep/lead.ts'

export interface HandRelay {
  readonly term: RelayTerm
  /** It has found out that another leads. */
  readonly isOver: boolean
  /** The generation that workers are told of. */
  readonly generation: string | undefined
  turn(gap?: () => Promise<void>): Promise<void>
  beat(): Promise<void>
  /** Until there is nothing left to do. */
  catchUp(): Promise<void>
}

const SIZES = { depth: 4, window: 8 }
const LEASE_MS = 60_000
const MOST_TURNS = 50

/** Leads from now on, whoever led before. */
export async function handRelay(options: {
  pool: Pool
  store: RedisStore
  deployment: string
  queue: string
  holder: string
  spread: Spread
  /** Default: as a relay has it, a minute. */
  unusedMs?: number
}): Promise<HandRelay> {
  const { pool, store, deployment } = options
  const holder = { name: options.holder, secret: newSecret() }
  await pool.query("update longshore.leader set expires_at = '-infinity'")
  const epoch = await lead(pool, 'longshore', holder, LEASE_MS, 'relay with Redis')
  await pool.query("update longshore.leader set expires_at = 'infinity'")
  const isNew = await setDispatch(pool, 'longshore', holder, 'redis')
  let isOver = false
  let gap: (() => Promise<void>) | undefined
  const term = createRelayTerm({
    pool: {
      ...pool,
      async queryTexts(text, values) {
        const rows = await pool.queryTexts(text, values)
        const now = text.includes('relay_read') ? gap : undefined
        if (now) gap = undefined
        await now?.()
        return rows
      },
    },
    schema: 'longshore',
    store,
    deployment,
    holder,
    epoch: String(epoch),
    mayAdopt: !isNew,
    spreadOf: () => options.spread,
    sizes: SIZES,
    unusedMs: options.unusedMs ?? 60_000,
    onLost: () => {
      isOver = true
    },
    onOpened: () => undefined,
    logger: pino({ level: process.env['LONGSHORE_LOG_LEVEL'] ?? 'silent' }),
  })
  const queue = () => term.queues.get(options.queue)

  const turn = async () => {
    const { rows, hasMore } = await term.turn(true)
    await term.opened()
    return rows > 0 || hasMore || queue()?.isLive !== true
  }
  const beat = async () => {
    if (isOver) return
    await term.readQueues()
    await term.beat()
    await term.opened()
  }
  await beat()

  return {
    term,
    get isOver() {
      return isOver
    },
    get generation() {
      return queue()?.isLive ? queue()?.generation : undefined
    },
    async turn(between) {
      if (isOver) return
      gap = between
      await turn()
      gap = undefined
    },
    beat,
    async catchUp() {
      // What takes and places leave to be read on in is known to the next beat.
      for (let turns = 0; turns < MOST_TURNS; ) {
        await beat()
        if (isOver || (turns > 0 && queue()?.isLive && queue()?.lowLanes.size === 0)) return
        while (await turn()) if (isOver || ++turns > MOST_TURNS) break
        turns++
      }
      throw new Error('the relay does not come to rest')
    },
  }
}
