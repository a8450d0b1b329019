/**
 * Owns the shape of the database: applies `migrations/*.sql` once and in order, and re-creates the functions under
 * `migrations/functions/` whose text has changed. Every step is a transaction that takes the lock first and then
 * looks at what is left to do, so any number of processes may start at once, also behind a transaction pooler.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import pg from 'pg'
import { checkOptions } from '../job/check-options.ts'
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'
import { connectionConfig } from './connect.ts'
import type { PostgresConfig } from './postgres-config.ts'
import { checkSchemaName, DEFAULT_SCHEMA, inSchema } from './schema-name.ts'
import { checkServerVersion, explainUnreachable } from './server-version.ts'

/** How far ahead the daily partitions of the history are made. */
export const HISTORY_DAYS_AHEAD = 14

export interface MigrateOptions {
  /** The database, as a user that may create the schema. */
  postgres: PostgresConfig
  /** Schema to install into. Default `longshore`. */
  schema?: string
  /** Change nothing; only report the steps that are left. Default false. */
  dryRun?: boolean
  /** Told each step as it is done (or would be done). */
  onStep?: (step: MigrationStep) => void
}

export interface MigrationStep {
  kind: 'migration' | 'function'
  name: string
  sql: string
}

interface SqlFile {
  name: string
  sql: string
  checksum: string
}

interface SchemaFiles {
  migrations: (SqlFile & { version: number })[]
  functions: SqlFile[]
}

const KNOWN = Object.keys({
  postgres: true,
  schema: true,
  dryRun: true,
  onStep: true,
} satisfies Record<keyof MigrateOptions, true>)

let cached: SchemaFiles | undefined

/** The SQL that this version of longshore ships. */
function schemaFiles(): SchemaFiles {
  if (cached) return cached
  const root = new URL('../../migrations/', import.meta.url)
  const read = (folder: URL): SqlFile[] =>
    readdirSync(folder)
      .filter(file => file.endsWith('.sql'))
      .sort()
      .map(file => {
        const sql = readFileSync(new URL(file, folder), 'utf8')
        return {
          name: file.slice(0, -'.sql'.length),
          sql,
          checksum: createHash('sha256').update(sql).digest('hex'),
        }
      })
  cached = {
    migrations: read(root).map(file => ({ ...file, version: Number(file.name.slice(0, 4)) })),
    functions: read(new URL('functions/', root)),
  }
  return cached
}

/** Bring the database to the shape that this version of longshore expects. Returns the steps taken. */
export async function migrate(options: MigrateOptions): Promise<MigrationStep[]> {
  checkOptions('CONFIG_INVALID', 'migrate', options, KNOWN)
  const schema = checkSchemaName(options.schema ?? DEFAULT_SCHEMA)
  const client = new pg.Client(connectionConfig(options.postgres))
  client.on('error', () => undefined) // the statement under way is told
  await client.connect().catch(explainUnreachable)
  try {
    await checkServerVersion(client)
    return options.dryRun ? await dryRun(client, schema, options) : await applyAll(client, schema, options)
  } finally {
    await client.end()
  }
}

async function dryRun(client: Queryable, schema: string, options: MigrateOptions): Promise<MigrationStep[]> {
  const left = await stepsLeft(client, schema)
  const steps = [...left.migrations, ...left.functions].map(step => toStep(schema, step))
  for (const step of steps) options.onStep?.(step)
  return steps
}

async function applyAll(
  client: Queryable,
  schema: string,
  options: MigrateOptions,
): Promise<MigrationStep[]> {
  const taken: MigrationStep[] = []
  const done = (step: MigrationStep) => {
    taken.push(step)
    options.onStep?.(step)
  }
  await inLockedTransaction(client, schema, () => createLedger(client, schema))
  for (const migration of schemaFiles().migrations) {
    await inLockedTransaction(client, schema, async () => {
      const left = await stepsLeft(client, schema)
      if (!left.migrations.some(m => m.version === migration.version)) return
      await client.query(inSchema(schema, migration.sql))
      await client.query(
        inSchema(schema, 'insert into longshore.migrations (version, name) values ($1, $2)'),
        [migration.version, migration.name],
      )
      done(toStep(schema, migration))
    })
  }
  await inLockedTransaction(client, schema, async () => {
    const { functions, surplus } = await stepsLeft(client, schema)
    for (const name of surplus) await dropFunction(client, schema, name)
    // Bodies may name functions that are created after them.
    await client.query('set local check_function_bodies = off')
    for (const file of functions) {
      await dropFunction(client, schema, file.name)
      await client.query(inSchema(schema, file.sql))
      await client.query(
        inSchema(schema, 'insert into longshore.functions (name, checksum) values ($1, $2)'),
        [file.name, file.checksum],
      )
      done(toStep(schema, file))
    }
    await client.query(inSchema(schema, 'select longshore.prepare_history($1)'), [HISTORY_DAYS_AHEAD])
    await client.query(
      inSchema(schema, 'select longshore.keep_logs($1, retention_days) from longshore.settings'),
      [HISTORY_DAYS_AHEAD],
    )
  })
  return taken
}

const toStep = (schema: string, file: SqlFile & { version?: number }): MigrationStep => ({
  kind: file.version === undefined ? 'function' : 'migration',
  name: file.name,
  sql: inSchema(schema, file.sql),
})

async function createLedger(client: Queryable, schema: string): Promise<void> {
  await client.query(`create schema if not exists "${schema}"`)
  await client.query(
    inSchema(
      schema,
      `create table if not exists longshore.migrations (
         version int primary key, name text not null, applied_at timestamptz not null default now())`,
    ),
  )
  await client.query(
    inSchema(
      schema,
      'create table if not exists longshore.functions (name text primary key, checksum text not null)',
    ),
  )
}

/** What the database lacks. Refuses a database that a newer longshore has migrated. */
export async function stepsLeft(client: Queryable, schema: string) {
  const ledger = await client.query('select to_regclass($1) is not null as found', [`"${schema}".functions`])
  const files = schemaFiles()
  if (!ledger.rows[0]?.['found']) return { ...files, surplus: [] as string[], isMissing: true }

  const applied = await client.query(inSchema(schema, 'select version from longshore.migrations'))
  const versions = new Set(applied.rows.map(row => Number(row['version'])))
  const known = Math.max(...files.migrations.map(m => m.version))
  const newest = Math.max(0, ...versions)
  if (newest > known) {
    throw new LongshoreError(
      'SCHEMA_NEWER',
      `schema "${schema}" is at version ${newest}, this longshore knows up to ${known}: upgrade the longshore package`,
    )
  }
  const stored = await client.query(inSchema(schema, 'select name, checksum from longshore.functions'))
  const checksums = new Map(stored.rows.map(row => [String(row['name']), String(row['checksum'])]))
  const names = new Set(files.functions.map(f => f.name))
  return {
    migrations: files.migrations.filter(m => !versions.has(m.version)),
    functions: files.functions.filter(f => checksums.get(f.name) !== f.checksum),
    surplus: [...checksums.keys()].filter(name => !names.has(name)),
    isMissing: versions.size === 0,
  }
}

/** A changed result type cannot be replaced in place: drop every overload first. */
async function dropFunction(client: Queryable, schema: string, name: string): Promise<void> {
  const { rows } = await client.query(
    `select p.oid::regprocedure::text as signature from pg_proc p
     join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1 and p.proname = $2`,
    [schema, name],
  )
  for (const row of rows) await client.query(`drop function ${row['signature']}`)
  await client.query(inSchema(schema, 'delete from longshore.functions where name = $1'), [name])
}

async function inLockedTransaction(
  client: Queryable,
  schema: string,
  run: () => Promise<void>,
): Promise<void> {
  await client.query('begin')
  try {
    await client.query("select pg_advisory_xact_lock(hashtext('longshore migrate'), hashtext($1))", [schema])
    await run()
    await client.query('commit')
  } catch (error) {
    await client.query('rollback').catch(() => undefined) // the first error says more
    throw error
  }
}
