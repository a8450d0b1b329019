/** Owns what is left to do in a database: which migrations and functions it lacks, and which databases are refused. */
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'
import { readNewer } from './release.ts'
import { type SchemaFiles, type SqlFile, schemaFiles } from './schema-files.ts'
import { inSchema, schemaFlag } from './schema-name.ts'

export interface MigrationStep {
  kind: 'migration' | 'function' | 'role' | 'owner' | 'grants'
  name: string
  sql: string
}

export const toStep = (schema: string, file: SqlFile & { version?: number }): MigrationStep => ({
  kind: file.version === undefined ? 'function' : 'migration',
  name: file.name,
  sql: inSchema(schema, file.sql),
})

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
