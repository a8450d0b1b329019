/** A database of its own for a test file: cloned from the migrated template, dropped at the end. */
import { createHash, randomBytes } from 'node:crypto'
import pg from 'pg'
import { afterAll, beforeAll, inject } from 'vitest'
import { AS_READER, AS_TEST, makeOdd, withOptions } from './odd-server.ts'
import { asUser, type Granted } from './role-kinds.ts'

export type TestClient = pg.Client & { readonly backendPid: number }

export interface TestDatabase {
  /** As the owner of everything. */
  readonly url: string
  /** As a process of this kind: where this run of the tests has roles, a user with its role and nothing else. `app`: worker and producer. */
  urlOf(kind: Granted | 'app'): string
  /** A plain connection, for looking and for forcing races; as the owner, or another user's URL. Closed by itself. */
  connect(url?: string): Promise<TestClient>
  /** Rows of one statement. `isPlanned`: it is asked again and again of few rows, and planned once. */
  rows<Row = Record<string, unknown>>(
    text: string,
    values?: unknown[],
    options?: { isPlanned?: boolean },
  ): Promise<Row[]>
}

/** Call at the top of a file. `isEmpty`: without the schema. */
export function useDatabase(options: { isEmpty?: boolean } = {}): TestDatabase {
  const name = `longshore_test_${randomBytes(6).toString('hex')}`
  const url = new URL(inject('adminUrl'))
  url.pathname = `/${name}`
  const clients: pg.Client[] = []
  let looker: Promise<pg.Client> | undefined
  let last: Promise<unknown> = Promise.resolve()

  const connect = async (as = url.href, settings: readonly string[] = AS_TEST) => {
    const client = new pg.Client(inject('isOdd') ? withOptions(as, settings) : as)
    client.on('error', () => undefined) // tests terminate backends on purpose
    await client.connect()
    clients.push(client)
    const { rows } = await client.query('select pg_backend_pid() as pid')
    return Object.assign(client, { backendPid: rows[0].pid as number })
  }

  beforeAll(async () => {
    const admin = new pg.Client(inject('adminUrl'))
    await admin.connect()
    await admin.query(`create database ${name}${options.isEmpty ? '' : ` template ${inject('template')}`}`)
    if (inject('isOdd')) await makeOdd(admin, name)
    await admin.end()
    if (options.isEmpty) return
    // Clones of one template would share their keys in Redis.
    const own = await connect()
    await own.query('update longshore.settings set deployment = $1', [randomBytes(6).toString('hex')])
    // What a test makes for its handlers is theirs to use.
    await own.query(
      'alter default privileges grant all on tables to public; alter default privileges grant all on sequences to public',
    )
  })

  afterAll(async () => {
    for (const client of clients) await client.end()
    const admin = new pg.Client(inject('adminUrl'))
    await admin.connect()
    await admin.query(`drop database ${name} with (force)`)
    await admin.end()
  })

  return {
    url: url.href,
    urlOf: kind => (inject('roles') === '' ? url.href : asUser(url.href, `${inject('roles')}_user_${kind}`)),
    connect: as => connect(as),
    async rows<Row>(text: string, values?: unknown[], { isPlanned = false } = {}) {
      looker ??= connect(url.href, AS_READER)
      const client = await looker
      const statement = isPlanned ? { name: nameOf(text), text, values } : { text, values }
      const next = last.then(() => client.query(statement as pg.QueryConfig))
      last = next.catch(() => undefined) // whoever asked is told
      return (await next).rows as Row[]
    },
  }
}

const nameOf = (text: string) => createHash('sha1').update(text).digest('hex')

/** Rows from any server, on a connection of their own each time: it may have been started anew. */
export function rowsAt(url: string): TestDatabase['rows'] {
  return async <Row>(text: string, values?: unknown[]) => {
    const client = new pg.Client(inject('isOdd') ? withOptions(url, AS_READER) : url)
    await client.connect()
    try {
      return (await client.query(text, values)).rows as Row[]
    } finally {
      await client.end()
    }
  }
}
