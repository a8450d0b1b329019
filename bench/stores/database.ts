/**
 * Owns the Postgres under test: a server of our own with settings that suit the machine, or the one of `DATABASE_URL`.
 * Everything happens in a database that is made anew for each measurement, so that none pays for the one before it.
 */
import { readFileSync } from 'node:fs'
import pg from 'pg'
import { type Store, startPostgres } from '../../src/dev/index.ts'

export interface Database {
  readonly url: string
  /** One sentence: which server this is. */
  readonly choice: string
  /** For CPU accounting; undefined when the server runs elsewhere. */
  readonly postmaster: number | undefined
  /** `pg_stat_statements` counts; only a server of our own is started with it. */
  readonly hasStatements: boolean
  /** Leaves an empty database behind `url`. */
  reset(): Promise<void>
  /** Give the planner statistics of what was loaded, as autovacuum would a minute later, and write it all out. */
  settle(): Promise<void>
  /** A statement on a connection of our own. */
  query(text: string): Promise<Record<string, unknown>[]>
  stop(): Promise<void>
}

const NAME = `longshore_bench_${process.pid}`

/** 200 workers have four connections each. */
const MAX_CONNECTIONS = 1500
const SETTINGS = {
  max_connections: MAX_CONNECTIONS,
  shared_buffers: '1GB',
  max_wal_size: '4GB',
  fsync: true,
  synchronous_commit: true,
}
/** Which statements `pg_stat_statements` counts: those of clients, or also those inside functions, with the time of their plans. */
export type CountedStatements = 'top' | 'all'

const statementSettings = (counted: CountedStatements) => ({
  shared_preload_libraries: 'pg_stat_statements',
  'pg_stat_statements.track': counted,
  'pg_stat_statements.track_planning': counted === 'all',
})

export async function openDatabase(counted: CountedStatements | undefined): Promise<Database> {
  const isGiven = Boolean(process.env['DATABASE_URL'])
  const hasStatements = counted !== undefined && !isGiven
  const server = isGiven
    ? await startPostgres()
    : await startPostgres({
        settings: { ...SETTINGS, ...(counted ? statementSettings(counted) : {}) },
        progress: line => process.stderr.write(`${line}\n`),
      })
  const url = new URL(server.url)
  url.pathname = `/${NAME}`

  let client: pg.Client | undefined
  const connected = async () => {
    if (client) return client
    client = await connect(url.href)
    return client
  }
  const disconnect = async () => {
    await client?.end()
    client = undefined
  }

  const reset = async () => {
    await disconnect()
    await onServer(server, async admin => {
      await admin.query(`drop database if exists ${NAME} with (force)`)
      await admin.query(`create database ${NAME}`)
    })
    if (hasStatements) await (await connected()).query('create extension pg_stat_statements')
  }

  return {
    url: url.href,
    choice: server.choice,
    postmaster: server.pid ?? (await onServer(server, findPostmaster)),
    hasStatements,
    reset,
    async settle() {
      const own = await connected()
      await own.query('analyze')
      await own.query('checkpoint')
      // What was done so far only led up to the measurement.
      if (hasStatements) await own.query('select pg_stat_statements_reset()')
    },
    async query(text) {
      return (await (await connected()).query(text)).rows
    },
    async stop() {
      await disconnect()
      if (isGiven)
        await onServer(server, admin => admin.query(`drop database if exists ${NAME} with (force)`))
      await server.stop()
    },
  }
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'longshore bench' })
  client.on('error', () => undefined) // the next query tells
  await client.connect()
  return client
}

async function onServer<T>(server: Store, work: (admin: pg.Client) => Promise<T>): Promise<T> {
  const admin = await connect(server.url)
  try {
    return await work(admin)
  } finally {
    await admin.end()
  }
}

/** The parent of our backend, if that is a process of this machine. */
async function findPostmaster(admin: pg.Client): Promise<number | undefined> {
  const { rows } = await admin.query(
    'select pg_backend_pid() as pid, inet_server_addr() = inet_client_addr() as here',
  )
  if (rows[0]?.here !== true) return undefined
  try {
    const status = readFileSync(`/proc/${rows[0].pid}/status`, 'utf8')
    const parent = /^Name:\s*postgres$[\s\S]*^PPid:\s*(\d+)$/m.exec(status)?.[1]
    return parent === undefined ? undefined : Number(parent)
  } catch {
    return undefined
  }
}
