/** Owns connections to Postgres: how to reach it, the pool and its settings. */
import { createHash } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'
import { messageOf } from '../job/stored-error.ts'
import { explainDenied } from './denied.ts'
import type { PostgresConfig } from './postgres-config.ts'
import { pinSession } from './session.ts'

/** A call that got no answer in this time is given up; its connection is replaced. */
const CALL_TIMEOUT_MS = 30_000
const ROLLBACK_MS = 2000
const CONNECT_TIMEOUT_MS = 10_000
const IDLE_MS = 10_000
const END_MS = 5000
/** How long a pool that ends still serves callers that wait for a connection. */
const SERVE_MS = 2000
const LOOK_MS = 10

export interface TextQueryable extends Queryable {
  /**
   * Rows as arrays of the texts that Postgres sent: the cheapest form, for the hot calls. On a pool the statement is prepared
   * once for each connection; behind a pooler that does not keep such statements the pool notices, and does without.
   */
  queryTexts(text: string, values: unknown[]): Promise<(string | null)[][]>
}

export interface Pool extends TextQueryable {
  /** Run `work` in a transaction of its own. */
  transaction<T>(work: (tx: TextQueryable) => Promise<T>): Promise<T>
  end(): Promise<void>
}

export function connectionConfig(postgres: PostgresConfig): pg.ClientConfig {
  if (typeof postgres === 'string' && !/^postgres(ql)?:\/\//.test(postgres)) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      'the Postgres connection string must start with postgres:// or postgresql://: set DATABASE_URL or pass `postgres`',
    )
  }
  if (postgres && typeof postgres !== 'string' && typeof postgres !== 'object') {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `postgres must be a connection string or an object of settings; got ${typeof postgres}`,
    )
  }
  if (!postgres) {
    throw new LongshoreError('CONFIG_INVALID', 'no Postgres given: set DATABASE_URL or pass `postgres`')
  }
  const given = typeof postgres === 'string' ? { connectionString: postgres } : postgres
  if (given.connectionString !== undefined) checkConnectionString(given.connectionString)
  return {
    application_name: 'longshore',
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    ...given,
  }
}

/** By the driver, which would otherwise throw at the first connect. What it says is not passed on as a cause: it may quote the password. */
function checkConnectionString(connectionString: string): void {
  try {
    new pg.Client({ connectionString })
  } catch (error) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `the Postgres connection string cannot be read: ${messageOf(error)}. Write it as postgres://user:password@host:5432/name, with @ : / ? # % in the password written as %40 %3A %2F %3F %23 %25`,
    )
  }
}

/** The pool's own setting of that name would also end the wait for a free connection, which is back-pressure. */
class PooledClient extends pg.Client {
  constructor(config?: pg.ClientConfig) {
    super({ ...config, connectionTimeoutMillis: CONNECT_TIMEOUT_MS })
    // Between a connect and its first use there is no listener, and an 'error' without one ends the process. The user of
    // the connection is told by its statement.
    this.on('error', () => undefined)
  }
}

const asTexts = { getTypeParser: () => (value: string) => value }

async function queryTexts(
  client: pg.Pool | pg.ClientBase,
  text: string,
  values: unknown[],
  name?: string,
): Promise<(string | null)[][]> {
  const { rows } = await client.query({
    text,
    values,
    rowMode: 'array',
    types: asTexts as never,
    ...(name === undefined ? {} : { name }),
  })
  return rows as (string | null)[][]
}

/** As `queryTexts`, also on a connection of the user: inside the user's transaction nothing is prepared. */
export const textsOf = async (
  db: Queryable | TextQueryable,
  text: string,
  values: unknown[],
): Promise<(string | null)[][]> => {
  if ('queryTexts' in db) return db.queryTexts(text, values)
  const { rows } = await db.query(text, values).catch(error => explainDenied(error, text))
  return rows.map(row => Object.values(row).map(value => (value === null ? null : String(value))))
}

const statementNames = new Map<string, string>()
/** One name for one text, in every process: a connection may have been used by others. It begins with the function called. */
function statementName(text: string): string {
  const known = statementNames.get(text)
  if (known) return known
  const called = /\.(\w{1,20})\w*\(/.exec(text)?.[1] ?? 'other'
  const name = `longshore_${called}_${createHash('sha256').update(text).digest('hex').slice(0, 32)}`
  statementNames.set(text, name)
  return name
}

/** The connection does not have the statement it was said to have, has another one, or its functions were replaced. */
const UNPREPARED = new Set(['26000', '42P05', '0A000'])

/**
 * A pool that never ends the process by an unhandled 'error': a broken idle connection is replaced. `isLent`: users run statements of
 * their own on its connections. `idleMs`: after that a connection is closed that is not used. `onAnswer`: Postgres has answered a call.
 */
export function openPool(
  postgres: PostgresConfig,
  max: number,
  onError: (error: Error) => void,
  {
    isLent = false,
    idleMs = IDLE_MS,
    onAnswer = () => undefined,
  }: { isLent?: boolean; idleMs?: number; onAnswer?: () => void } = {},
): Pool {
  const pool = new pg.Pool({
    ...connectionConfig(postgres),
    max,
    idleTimeoutMillis: idleMs,
    query_timeout: CALL_TIMEOUT_MS,
    connectionTimeoutMillis: 0,
    Client: PooledClient,
    onConnect: client => pinSession(client, isLent),
  })
  pool.on('error', onError)
  // The driver forgets callers that wait for a connection when its pool ends: they would wait for ever.
  const waiting = new Set<(error: Error) => void>()
  const connect = () =>
    new Promise<pg.PoolClient>((resolve, reject) => {
      waiting.add(reject)
      pool.connect().then(
        client => (waiting.delete(reject) ? resolve(client) : client.release()),
        error => {
          waiting.delete(reject)
          reject(error)
        },
      )
    })
  const close = async () => {
    const until = performance.now() + SERVE_MS
    while (pool.waitingCount > 0 && performance.now() < until) await pause(LOOK_MS)
    for (const refuse of waiting) refuse(new Error('connection ended: the pool was closed'))
    waiting.clear()
    // Connections that wait for a silent server are not waited for.
    await Promise.race([pool.end(), pause(END_MS, undefined, { ref: false })])
  }
  let isPreparing = true
  const queryPrepared = async (text: string, values: unknown[]) => {
    if (!isPreparing) return queryTexts(pool, text, values)
    try {
      return await queryTexts(pool, text, values, statementName(text))
    } catch (error) {
      // Told before anything was run, so it may be asked again.
      if (!UNPREPARED.has(String((error as { code?: unknown }).code))) throw error
      isPreparing = false
      return queryTexts(pool, text, values)
    }
  }
  const answered = <T>(answer: T): T => {
    onAnswer()
    return answer
  }
  let ended: Promise<void> | undefined
  return {
    query: (text, values) => pool.query(text, values).then(answered, error => explainDenied(error, text)),
    queryTexts: (text, values) =>
      queryPrepared(text, values).then(answered, error => explainDenied(error, text)),
    async transaction(work) {
      const client = await connect()
      let broken: Error | undefined
      // The pool does not listen to a client in use; the statement under way fails anyway.
      client.on('error', onError)
      try {
        await client.query('begin isolation level read committed')
        // The client itself, so that what is made for the driver's clients can use it.
        const result = await work(
          Object.assign(client, {
            queryTexts: (text: string, values: unknown[]) =>
              queryTexts(client, text, values).catch(error => explainDenied(error, text)),
          }),
        )
        const { command } = await client.query('commit')
        // Postgres calls it no error: a statement that was not awaited has failed meanwhile.
        if (command !== 'COMMIT')
          throw new Error('the transaction was rolled back, since a statement in it failed: wait for each')
        return result
      } catch (error) {
        // Without an answer the connection is closed, and Postgres rolls back by itself.
        const rollback = { text: 'rollback', query_timeout: ROLLBACK_MS }
        await client.query(rollback).catch((failure: Error) => {
          broken = failure
        })
        throw error
      } finally {
        client.off('error', onError)
        client.release(broken)
      }
    },
    end() {
      ended ??= close()
      return ended
    },
  }
}
