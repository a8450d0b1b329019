/**
 * Owns the doing of what is left: migrations once and in order, roles, then functions and grants. Every step is a transaction that takes
 * the lock first and then looks at what is left to do, so any number of processes may start at once, also behind a transaction pooler.
 */
import type { Queryable } from '../job/queryable.ts'
import { type As, inLockedTransaction } from './locked-step.ts'
import { createRelease, writeRelease } from './release.ts'
import { applyRoles, choosePrefix, grantsFile, grantsStep, needsGrants, readRoles } from './roles.ts'
import { type SchemaFiles, schemaFiles } from './schema-files.ts'
import { inSchema } from './schema-name.ts'
import { type MigrationStep, stepsLeft, toStep } from './steps-left.ts'

/** As in MigrateOptions. */
export interface ApplyOptions {
  roles: boolean | string
  patienceMs: number
  onStep: (step: MigrationStep) => void
}

export async function applySteps(
  client: Queryable,
  schema: string,
  { roles, patienceMs, onStep }: ApplyOptions,
): Promise<MigrationStep[]> {
  const taken: MigrationStep[] = []
  const apply = async (step: () => Promise<MigrationStep[]>, as?: As) => {
    for (const done of await inLockedTransaction(client, schema, patienceMs, step, as)) {
      taken.push(done)
      onStep(done)
    }
  }
  await apply(() => begin(client, schema))
  for (const migration of schemaFiles().migrations)
    await apply(() => applyMigration(client, schema, migration))
  // As the user that migrates: the owner role makes no roles.
  if (roles) await apply(() => makeRoles(client, schema, roles), { asOwner: false })
  await apply(() => applyFunctions(client, schema, Boolean(roles)))
  return taken
}

async function begin(client: Queryable, schema: string): Promise<MigrationStep[]> {
  await createLedger(client, schema)
  if ((await stepsLeft(client, schema)).newer === undefined) await writeRelease(client, schema)
  return []
}

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

async function applyMigration(
  client: Queryable,
  schema: string,
  migration: SchemaFiles['migrations'][number],
): Promise<MigrationStep[]> {
  const left = await stepsLeft(client, schema)
  if (!left.migrations.some(m => m.version === migration.version)) return []
  await client.query(inSchema(schema, migration.sql))
  await client.query(inSchema(schema, 'insert into longshore.migrations (version, name) values ($1, $2)'), [
    migration.version,
    migration.name,
  ])
  return [toStep(schema, migration)]
}

async function makeRoles(
  client: Queryable,
  schema: string,
  asked: boolean | string,
): Promise<MigrationStep[]> {
  if ((await stepsLeft(client, schema)).newer !== undefined) return []
  return applyRoles(client, schema, choosePrefix(asked, await readRoles(client, schema), schema))
}

/** Makes the functions whose text has changed, with what was granted, and the partitions that are needed next. */
async function applyFunctions(
  client: Queryable,
  schema: string,
  hasAskedForRoles: boolean,
): Promise<MigrationStep[]> {
  const { functions, surplus, newer } = await stepsLeft(client, schema)
  if (newer !== undefined) return []
  for (const name of surplus) await dropFunction(client, schema, name)
  // Bodies may name functions that are created after them.
  await client.query('set local check_function_bodies = off')
  for (const file of functions) {
    await dropFunction(client, schema, file.name)
    await client.query(inSchema(schema, file.sql))
    await client.query(inSchema(schema, 'insert into longshore.functions (name, checksum) values ($1, $2)'), [
      file.name,
      file.checksum,
    ])
  }
  await closeToPublic(client, schema)
  const granted = await grantAgain(client, schema, hasAskedForRoles || functions.length > 0)
  await client.query(inSchema(schema, 'select longshore.prepare_history()'))
  await client.query(inSchema(schema, 'select longshore.keep_logs(retention_days) from longshore.settings'))
  return [...functions.map(file => toStep(schema, file)), ...granted]
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

/** Postgres lets every role call a new function; those that run as their owner must not be open to all. */
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
