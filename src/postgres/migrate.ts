/**
 * Owns the shape of the database: applies `migrations/*.sql` once and in order, and re-creates the functions under
 * `migrations/functions/<step>/` whose text has changed. Every step is a transaction that takes the lock first and then
 * looks at what is left to do, so any number of processes may start at once, also behind a transaction pooler. Processes go on
 * meanwhile: a step that would have to wait for somebody's open transaction, with everybody else behind it, is tried again later.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { checkOptions } from '../job/check-options.ts'
import { type Duration, toTimerMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'
import { ownFile } from '../runtime/own-files.ts'
import { pauseMs } from '../runtime/retry.ts'
import { connectionConfig } from './connect.ts'
import type { PostgresConfig } from './postgres-config.ts'
import { createRelease, readNewer, writeRelease } from './release.ts'
import {
  actAsOwner,
  applyRoles,
  choosePrefix,
  explainNotOwner,
  grantsFile,
  grantsStep,
  hasAllRoles,
  type Roles,
  readRoles,
  roleSteps,
} from './roles.ts'
import { checkSchemaName, DEFAULT_SCHEMA, inSchema, schemaFlag } from './schema-name.ts'
import { checkServerVersion } from './server-version.ts'
import { checkSession, pinSession } from './session.ts'
import { explainUnavailable, toUnavailable } from './unavailable.ts'

export interface MigrateOptions {
  /** The database, as a user that may create the schema. */
  postgres: PostgresConfig
  /** Schema to install into. Default `longshore`. */
  schema?: string
  /**
   * Make the roles that producers, workers, relays and readers are to have, hand the schema over to an owner role and grant
   * what each needs. A text: what the names of the roles begin with, in place of the schema's name. Default false; an
   * installation that has roles keeps them in order either way.
   */
  roles?: boolean | string
  /** Change nothing; only report the steps that are left. Default false. */
  dryRun?: boolean
  /**
   * How long to try again a step whose tables somebody's open transaction holds. Each try waits a second for them at most, so that
   * nobody waits behind it for longer. Default `'2m'`.
   */
  patience?: Duration
  /** Told each step as it is done (or would be done). */
  onStep?: (step: MigrationStep) => void
  /** Told what is left to be done by somebody with more rights. */
  onNotice?: (message: string) => void
}

export interface MigrationStep {
  kind: 'migration' | 'function' | 'role' | 'owner' | 'grants'
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
  roles: true,
  dryRun: true,
  patience: true,
  onStep: true,
  onNotice: true,
} satisfies Record<keyof MigrateOptions, true>)

let cached: SchemaFiles | undefined

/** The SQL that this version of longshore ships. */
function schemaFiles(): SchemaFiles {
  if (cached) return cached
  const root = ownFile('migrations/')
  const read = (folder: URL): SqlFile[] =>
    readdirSync(folder)
      .filter(file => file.endsWith('.sql'))
      .map(file => {
        const sql = readFileSync(new URL(file, folder), 'utf8')
        return {
          name: file.slice(0, -'.sql'.length),
          sql,
          checksum: createHash('sha256').update(sql).digest('hex'),
        }
      })
  const functions = new URL('functions/', root)
  const byName = (a: SqlFile, b: SqlFile) => (a.name < b.name ? -1 : 1)
  cached = {
    migrations: read(root)
      .map(file => ({ ...file, version: Number(file.name.slice(0, 4)) }))
      .sort(byName),
    // A folder for each step of a job's way.
    functions: readdirSync(functions)
      .flatMap(step => read(new URL(`${step}/`, functions)))
      .sort(byName),
  }
  return cached
}

/** Bring the database to the shape that this version of longshore expects. Returns the steps taken. */
export async function migrate(options: MigrateOptions): Promise<MigrationStep[]> {
  checkOptions('CONFIG_INVALID', 'migrate', options, KNOWN)
  const schema = checkSchemaName(options.schema ?? DEFAULT_SCHEMA)
  const patienceMs = toTimerMs(options.patience ?? '2m', 'patience')
  const client = new pg.Client(connectionConfig(options.postgres))
  client.on('error', () => undefined) // the statement under way is told
  // Those with a code are of Postgres itself: what it skips.
  client.on('notice', ({ code, message }) => {
    if (code === '00000' && message) options.onNotice?.(message)
  })
  await client.connect().catch(explainUnavailable)
  try {
    await pinSession(client)
    await checkServerVersion(client)
    await checkSession(client, { writes: options.dryRun !== true })
    return options.dryRun
      ? await dryRun(client, schema, options)
      : await applyAll(client, schema, patienceMs, options)
  } catch (error) {
    return await explainNotOwner(toUnavailable(error), client, schema)
  } finally {
    await client.end()
  }
}

async function dryRun(client: Queryable, schema: string, options: MigrateOptions): Promise<MigrationStep[]> {
  const left = await stepsLeft(client, schema)
  const steps = [...left.migrations, ...left.functions].map(step => toStep(schema, step))
  const known = await readRoles(client, schema)
  if (options.roles && left.newer === undefined) {
    const prefix = choosePrefix(options.roles, known, schema)
    const { rows } = left.isMissing
      ? { rows: [] }
      : await client.query(inSchema(schema, 'select deployment from longshore.settings'))
    steps.push(...(await roleSteps(client, schema, prefix, rows[0]?.['deployment'] as string | undefined)))
    steps.push(await grantsStep(client, schema, prefix))
  } else if (
    known &&
    left.newer === undefined &&
    (await needsGrants(client, known, left.functions.length > 0))
  )
    steps.push(await grantsStep(client, schema, known.prefix))
  for (const step of steps) options.onStep?.(step)
  return steps
}

async function applyAll(
  client: Queryable,
  schema: string,
  patienceMs: number,
  options: MigrateOptions,
): Promise<MigrationStep[]> {
  const taken: MigrationStep[] = []
  const apply = async (step: () => Promise<MigrationStep[]>, as?: As) => {
    for (const done of await inLockedTransaction(client, schema, patienceMs, step, as)) {
      taken.push(done)
      options.onStep?.(done)
    }
  }
  await apply(async () => {
    await createLedger(client, schema)
    if ((await stepsLeft(client, schema)).newer === undefined) await writeRelease(client, schema)
    return []
  })
  for (const migration of schemaFiles().migrations) {
    await apply(async () => {
      const left = await stepsLeft(client, schema)
      if (!left.migrations.some(m => m.version === migration.version)) return []
      await client.query(inSchema(schema, migration.sql))
      await client.query(
        inSchema(schema, 'insert into longshore.migrations (version, name) values ($1, $2)'),
        [migration.version, migration.name],
      )
      return [toStep(schema, migration)]
    })
  }
  if (options.roles) {
    // As whoever migrates: the owner role makes no roles.
    await apply(
      async () => {
        if ((await stepsLeft(client, schema)).newer !== undefined) return []
        return applyRoles(
          client,
          schema,
          choosePrefix(options.roles, await readRoles(client, schema), schema),
        )
      },
      { asOwner: false },
    )
  }
  await apply(async () => {
    const { functions, surplus, newer } = await stepsLeft(client, schema)
    if (newer !== undefined) return []
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
    }
    await closeToPublic(client, schema)
    const granted = await grantAgain(client, schema, Boolean(options.roles) || functions.length > 0)
    await client.query(inSchema(schema, 'select longshore.prepare_history()'))
    await client.query(inSchema(schema, 'select longshore.keep_logs(retention_days) from longshore.settings'))
    return [...functions.map(file => toStep(schema, file)), ...granted]
  })
  return taken
}

/** Functions are made for everybody; those that run as their owner must not be. */
async function closeToPublic(client: Queryable, schema: string): Promise<void> {
  const { rows } = await client.query(
    `select from pg_proc p where p.pronamespace = to_regnamespace($1)
       and (p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0)) limit 1`,
    [`"${schema}"`],
  )
  if (rows.length > 0) await client.query(`revoke all on all functions in schema "${schema}" from public`)
}

/** Functions that are made anew have lost what was granted. */
async function grantAgain(client: Queryable, schema: string, isAsked: boolean): Promise<MigrationStep[]> {
  const roles = await readRoles(client, schema)
  if (!roles || !(await needsGrants(client, roles, isAsked))) return []
  const step = await grantsStep(client, schema, roles.prefix)
  await client.query(step.sql)
  await client.query(inSchema(schema, 'update longshore.roles set checksum = $1'), [grantsFile().checksum])
  return [step]
}

const needsGrants = async (client: Queryable, roles: Roles, isAsked: boolean): Promise<boolean> =>
  (isAsked || roles.checksum !== grantsFile().checksum) && (await hasAllRoles(client, roles.prefix))

const toStep = (schema: string, file: SqlFile & { version?: number }): MigrationStep => ({
  kind: file.version === undefined ? 'function' : 'migration',
  name: file.name,
  sql: inSchema(schema, file.sql),
})

async function createLedger(client: Queryable, schema: string): Promise<void> {
  // Looked at first: `if not exists` asks for the right to make schemas, also where there is one.
  const found = await client.query('select to_regnamespace($1) is not null as found', [`"${schema}"`])
  if (!found.rows[0]?.['found']) await client.query(`create schema "${schema}"`)
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
  await createRelease(client, schema)
}

/**
 * What the database lacks. Nothing, where a newer version has migrated it that serves this one (`newer`); a database that does not is
 * refused.
 */
export async function stepsLeft(client: Queryable, schema: string) {
  const ledger = await client.query(
    'select to_regclass($1) is not null as found, to_regclass($2) is not null as has_release',
    [`"${schema}".functions`, `"${schema}".release`],
  )
  const files = schemaFiles()
  if (!ledger.rows[0]?.['found'])
    return { ...files, surplus: [] as string[], isMissing: true, newer: undefined }
  const newer = ledger.rows[0]['has_release'] ? await readNewer(client, schema) : undefined
  if (newer !== undefined)
    return { migrations: [], functions: [], surplus: [] as string[], isMissing: false, newer }

  const applied = await client.query(
    inSchema(schema, 'select version, name from longshore.migrations /* point: versions */'),
  )
  const versions = new Map(applied.rows.map(row => [Number(row['version']), String(row['name'])]))
  refuseOldLayout(schema, files, versions)
  const known = Math.max(...files.migrations.map(m => m.version))
  const newest = Math.max(0, ...versions.keys())
  if (newest > known) {
    throw new LongshoreError(
      'SCHEMA_NEWER',
      `schema "${schema}" is at version ${newest}, this longshore knows up to ${known}: upgrade the longshore package`,
    )
  }
  const stored = await client.query(
    inSchema(
      schema,
      'select name, /* guard: checksum */ checksum /* end checksum */ from longshore.functions',
    ),
  )
  const checksums = new Map(stored.rows.map(row => [String(row['name']), String(row['checksum'])]))
  const names = new Set(files.functions.map(f => f.name))
  return {
    migrations: files.migrations.filter(m => !versions.has(m.version)),
    functions: files.functions.filter(f => checksums.get(f.name) !== f.checksum),
    surplus: [...checksums.keys()].filter(name => !names.has(name)),
    isMissing: versions.size === 0,
    newer,
  }
}

/** Before the first release the schema stood in other files, whose tables nothing migrates. */
function refuseOldLayout(schema: string, files: SchemaFiles, versions: ReadonlyMap<number, string>): void {
  const other = files.migrations.find(({ version, name }) => (versions.get(version) ?? name) !== name)
  if (!other) return
  throw new LongshoreError(
    'SCHEMA_OUTDATED',
    `schema "${schema}" was made by a version before the first release of longshore (its migration ${versions.get(other.version)} ` +
      `is ${other.name} here), and cannot be migrated: keep what you need of it (\`select task, payload\` of its jobs), ` +
      `run \`drop schema "${schema}" cascade\`, then \`longshore migrate${schemaFlag(schema)}\`, and enqueue those jobs again`,
  )
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

/** So long a step waits for others, who wait behind it; then it lets them go first. */
const LOCK_TIMEOUT = '1s'
const PAUSES = { firstMs: 500, maxMs: 2000 }

/**
 * What the texts are read with, for this transaction, behind a pooler too: views and some functions are stored as they were understood. A
 * step may take long.
 */
const AS_USUAL = `
  select pg_catalog.set_config(s.name, p.value, true)
  from (values ('search_path', 'pg_catalog'), ('standard_conforming_strings', 'on'), ('datestyle', 'ISO'), ('timezone', 'UTC'),
    ('client_min_messages', 'notice'), ('quote_all_identifiers', 'off'), ('statement_timeout', '0'), ('lock_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0')) as p(name, value)
  join pg_catalog.pg_settings s on pg_catalog.lower(s.name) = p.name`

interface As {
  /** Whatever is made belongs to the owner role, where there is one. Default true. */
  asOwner?: boolean
}

async function inLockedTransaction<T>(
  client: Queryable,
  schema: string,
  patienceMs: number,
  run: () => Promise<T>,
  as: As = {},
): Promise<T> {
  const until = performance.now() + patienceMs
  for (let tries = 1; ; tries++) {
    try {
      return await inTransaction(client, schema, run, as)
    } catch (error) {
      const { code } = error as { code?: unknown }
      if (code !== '55P03' && code !== '40P01') throw error
      if (performance.now() >= until) throw await explainHeld(client, schema, error)
      await pause(pauseMs(tries, PAUSES))
    }
  }
}

async function inTransaction<T>(
  client: Queryable,
  schema: string,
  run: () => Promise<T>,
  { asOwner = true }: As,
): Promise<T> {
  await client.query('begin isolation level read committed')
  try {
    await client.query(AS_USUAL)
    await client.query("select pg_advisory_xact_lock(hashtext('longshore migrate'), hashtext($1))", [schema])
    await client.query(`set local lock_timeout = '${LOCK_TIMEOUT}'`)
    if (asOwner) await actAsOwner(client, schema)
    const done = await run()
    await client.query('commit')
    return done
  } catch (error) {
    await client.query('rollback').catch(() => undefined) // the first error says more
    throw error
  }
}

async function explainHeld(client: Queryable, schema: string, cause: unknown): Promise<LongshoreError> {
  const { rows } = await client.query(
    `select distinct a.pid from pg_locks l join pg_stat_activity a on a.pid = l.pid join pg_class c on c.oid = l.relation
     where l.granted and c.relnamespace = $1::regnamespace and a.pid <> pg_backend_pid() and a.xact_start < now() - interval '1 second'
       and a.wait_event_type is distinct from 'Lock'
     order by 1 limit 10`,
    [`"${schema}"`],
  )
  const held = rows.length > 0 ? ` (process ${rows.map(row => row['pid']).join(', ')} of Postgres)` : ''
  return new LongshoreError(
    'STORE_UNAVAILABLE',
    `a table of schema "${schema}" that this migration changes is held by an open transaction${held}: end it, and migrate again; the steps before are done`,
    { cause },
  )
}
