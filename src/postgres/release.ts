/**
 * Owns which version of longshore a schema is of, and which versions may use it. A schema is written by the newest version that
 * has migrated it; processes of earlier ones, back to what `schema.servesFrom` in package.json says, go on beside it. See ADR 18.
 */
import { readFileSync } from 'node:fs'
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'
import { ownFile } from '../runtime/own-files.ts'
import { inSchema } from './schema-name.ts'

interface Release {
  readonly version: string
  /** The oldest version whose processes may use the schema. */
  readonly servesFrom: string
}

let own: Release | undefined

/** Of this package. */
export function ownRelease(): Release {
  if (own) return own
  const text = readFileSync(ownFile('package.json'), 'utf8')
  const { version, schema } = JSON.parse(text) as { version: string; schema: { servesFrom: string } }
  own = { version, servesFrom: schema.servesFrom }
  return own
}

/** Whether a version comes after another: by its numbers, and a pre-release comes before its release. */
export function isNewer(version: string, than: string): boolean {
  const [a, b] = [toParts(version), toParts(than)]
  const at = a.findIndex((part, n) => part !== b[n])
  return at >= 0 && (a[at] as number) > (b[at] as number)
}

function toParts(version: string): number[] {
  const [, major, minor, patch, before] = /^(\d+)\.(\d+)\.(\d+)(-.+)?/.exec(version) ?? []
  return [Number(major ?? 0), Number(minor ?? 0), Number(patch ?? 0), before === undefined ? 1 : 0]
}

export async function createRelease(client: Queryable, schema: string): Promise<void> {
  await client.query(
    inSchema(
      schema,
      `create table if not exists longshore.release (
         only_row boolean primary key default true check (only_row),
         version text not null,
         serves_from text not null)`,
    ),
  )
}

/** Written before anything else is changed: from then on processes of earlier versions know that they are not the newest. */
export async function writeRelease(client: Queryable, schema: string): Promise<void> {
  const { version, servesFrom } = ownRelease()
  await client.query(
    inSchema(
      schema,
      `insert into longshore.release as r (version, serves_from) values ($1, $2)
       on conflict (only_row) do update set version = excluded.version, serves_from = excluded.serves_from
       where (r.version, r.serves_from) <> (excluded.version, excluded.serves_from)`,
    ),
    [version, servesFrom],
  )
}

/** The newer version that the schema is of, if it is. Refuses a schema that this version must not use any more. */
export async function readNewer(client: Queryable, schema: string): Promise<string | undefined> {
  const { rows } = await client.query(
    inSchema(
      schema,
      'select version, /* guard: serves-from */ serves_from /* end serves-from */ from longshore.release',
    ),
  )
  const { version: mine } = ownRelease()
  const version = String(rows[0]?.['version'] ?? '0.0.0')
  const servesFrom = String(rows[0]?.['serves_from'] ?? '0.0.0')
  if (!isNewer(version, mine)) return undefined
  if (isNewer(servesFrom, mine)) {
    throw new LongshoreError(
      'SCHEMA_NEWER',
      `schema "${schema}" is of longshore ${version}, which serves processes from version ${servesFrom} on; this is ${mine}: upgrade the longshore package`,
    )
  }
  return version
}
