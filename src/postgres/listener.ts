/**
 * Owns one connection of its own that listens for notifications and carries the small periodic calls of the
 * upkeep, so that they do not wait behind jobs for a place in the pool. Reconnects by itself; `onGap` tells that
 * notifications may have been missed meanwhile.
 */
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import type { Queryable } from '../job/queryable.ts'
import { pauseMs } from '../runtime/retry.ts'
import { connectionConfig } from './connect.ts'
import { explainDenied } from './denied.ts'
import type { PostgresConfig } from './postgres-config.ts'
import { pinSession } from './session.ts'

export interface Listener extends Queryable {
  close(): Promise<void>
}

/** The warning where notifications may not arrive. */
export const POOLED =
  'Postgres is reached through a pooler: in transaction mode notifications do not come through, and jobs, cancels and results are found by polling. Name Postgres itself for listening, with DATABASE_LISTEN_URL or `listen`'

const PAUSES = { firstMs: 50, maxMs: 2000 }
const CLOSE_MS = 2000
const CALL_TIMEOUT_MS = 10_000

export async function openListener(options: {
  postgres: PostgresConfig
  /** Full channel names, see `channelName`. */
  channels: string[]
  onNotify: (channel: string, payload: string) => void
  onGap: () => void
  onError: (error: Error) => void
  /** There is a pooler in between; in transaction mode it lets no notification through. Told once. */
  onPooled?: () => void
}): Promise<Listener> {
  let client: pg.Client | undefined
  let isClosed = false
  let timer: NodeJS.Timeout | undefined
  let failures = 0
  let isToldPooled = false

  /** A pooler introduces itself with a process of its own making. */
  const lookForPooler = async (next: pg.Client) => {
    const { rows } = await next.query('select pg_backend_pid() as pid')
    if (isToldPooled || rows[0]?.pid === (next as { processID?: unknown }).processID) return
    isToldPooled = true
    options.onPooled?.()
  }

  const connect = async () => {
    const next = new pg.Client({ ...connectionConfig(options.postgres), query_timeout: CALL_TIMEOUT_MS })
    next.on('error', () => lost(next))
    next.on('end', () => lost(next))
    next.on('notification', message => options.onNotify(message.channel, message.payload ?? ''))
    try {
      await next.connect()
      await pinSession(next)
      await lookForPooler(next)
      for (const channel of options.channels) await next.query(`listen ${next.escapeIdentifier(channel)}`)
    } catch (error) {
      next.removeAllListeners('end')
      await next.end().catch(() => undefined) // it may never have been open
      throw error
    }
    client = next
    failures = 0
  }

  const lost = (which: pg.Client) => {
    if (isClosed || which !== client) return
    client = undefined
    reconnect()
  }

  const reconnect = () => {
    if (isClosed) return
    failures++
    timer = setTimeout(
      () => {
        connect().then(
          () => (isClosed ? client?.end() : options.onGap()),
          (error: Error) => {
            options.onError(error)
            reconnect()
          },
        )
      },
      pauseMs(failures, PAUSES),
    )
  }

  const query = async (text: string, values?: unknown[]) => {
    if (!client) throw new Error('connection terminated: the listener is reconnecting')
    const asked = client
    return asked.query(text, values).catch(error => {
      // A connection that does not answer would hold up everything behind it.
      if (/query read timeout/i.test(String(error?.message))) {
        lost(asked)
        asked.end().catch(() => undefined) // it is broken off, not ended
      }
      return explainDenied(error, text)
    })
  }

  await connect()
  let last: Promise<unknown> = Promise.resolve()
  return {
    // One after another: the driver takes one statement at a time.
    query(text, values) {
      const next = last.then(() => query(text, values))
      last = next.catch(() => undefined) // the caller is told
      return next
    },
    async close() {
      isClosed = true
      clearTimeout(timer)
      // A server that does not answer must not hold up a stop: ending with a statement under way breaks it off.
      await Promise.race([last, pause(CLOSE_MS, undefined, { ref: false })])
      await Promise.race([client?.end(), pause(CLOSE_MS, undefined, { ref: false })])
    },
  }
}
