/**
 * Owns the roles of an installation: makes them, hands the schema over to its owner role, and grants what
 * `migrations/roles/grants.sql` says. Roles belong to the whole server, so their names begin with a prefix; a comment on each
 * says whose it is.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'
import { ownFile } from '../runtime/own-files.ts'
import { checkSchemaName, inSchema } from './schema-name.ts'

const GRANTED = ['producer', 'worker', 'relay', 'reader'] as const
/** The owner has the schema and all that is in it: a migration acts as this role. */
const ROLES = ['owner', ...GRANTED] as const

/** What has been written down of an installation's roles. */
export interface Roles {
  prefix: string
  checksum: string
}

/** SQL to run, and what to call it. */
export interface RoleStep {
  kind: 'role' | 'owner' | 'grants'
  name: string
  sql: string
}

let cached: { sql: string; checksum: string } | undefined
export function grantsFile(): { sql: string; checksum: string } {
  if (cached) return cached
  const sql = readFileSync(ownFile('migrations/roles/grants.sql'), 'utf8')
  cached = { sql, checksum: createHash('sha256').update(sql).digest('hex') }
  return cached
}

const quoted = (prefix: string, role: (typeof ROLES)[number]) => `"${prefix}_${role}"`

/** SQL text written for `longshore_<role>` and `longshore.…`, made to speak of this installation's. */
function forInstallation(schema: string, prefix: string, sql: string): string {
  const named = sql.replaceAll(
    /\blongshore_(producer|worker|relay|reader)\b/g,
    (_, role) => `"${prefix}_${role}"`,
  )
  return inSchema(schema, named.replaceAll('on schema longshore', `on schema "${schema}"`))
}

/** Undefined: this installation has none. */
export async function readRoles(client: Queryable, schema: string): Promise<Roles | undefined> {
  const table = await client.query('select to_regclass($1) is not null as found', [`"${schema}".roles`])
  if (!table.rows[0]?.['found']) return undefined
  const { rows } = await client.query(inSchema(schema, 'select prefix, checksum from longshore.roles'))
  return rows[0] as Roles | undefined
}

/** The prefix to use: what was asked for, what the installation has, or the name of its schema. */
export function choosePrefix(
  asked: boolean | string | undefined,
  known: Roles | undefined,
  schema: string,
): string {
  const prefix = checkSchemaName(typeof asked === 'string' ? asked : (known?.prefix ?? schema))
  if (known && known.prefix !== prefix) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `the roles of schema "${schema}" begin with "${known.prefix}_", not with "${prefix}_": leave the prefix out`,
    )
  }
  return prefix
}

/** What is left to do before anything can be granted. `deployment`: whose roles they are. */
export async function roleSteps(
  client: Queryable,
  schema: string,
  prefix: string,
  deployment: string | undefined,
): Promise<RoleStep[]> {
  const names = ROLES.map(role => `${prefix}_${role}`)
  const { rows } = await client.query(
    `select r.rolname as name, substring(shobj_description(r.oid, 'pg_authid') from '^longshore deployment ([0-9a-z_]+)') as deployment
     from pg_roles r where r.rolname = any ($1)`,
    [names],
  )
  const known = new Map(rows.map(row => [String(row['name']), row['deployment'] as string | null]))
  for (const [name, other] of known) {
    if (other === null || other === deployment) continue
    throw new LongshoreError(
      'CONFIG_INVALID',
      `role "${name}" belongs to another installation on this server (deployment ${other}): name this one's roles with a prefix of their own, longshore migrate --roles <prefix>`,
    )
  }
  const made = names
    .filter(name => !known.has(name))
    .map((name): RoleStep => ({ kind: 'role', name, sql: createRole(name, deployment) }))
  const handedOver = await handOver(client, schema, prefix)
  if (made.length === 0 && handedOver.length === 0) return []
  return [
    ...made,
    // To change the owner of something a user must be able to act as the new owner.
    { kind: 'owner', name: `${prefix}_owner`, sql: [joinOwner(prefix), ...handedOver, ''].join(';\n') },
  ]
}

/** Another database's migrate may make it at the same moment. */
const createRole = (name: string, deployment: string | undefined) => `do $$ begin
  create role "${name}" nologin;
  comment on role "${name}" is 'longshore deployment ${deployment ?? 'new'}';
exception when duplicate_object or unique_violation then null;
end $$`

/** To end a claim whose answer is not read, `rescue` must see and end connections of other users, see end_claims.sql. */
const joinOwner = (prefix: string) => `do $$ begin
  if not pg_has_role('${prefix}_owner', 'usage') then
    execute format('grant ${quoted(prefix, 'owner')} to %I', current_user);
  end if;
  begin
    grant pg_signal_backend, pg_read_all_stats to ${quoted(prefix, 'owner')};
  exception when insufficient_privilege then
    raise notice 'an administrator should grant pg_signal_backend and pg_read_all_stats to ${prefix}_owner';
  end;
end $$`

/** Everything in the schema that is not the owner role's. Default partitions first: then no more partitions are made. */
async function handOver(client: Queryable, schema: string, prefix: string): Promise<string[]> {
  const { rows } = await client.query(
    `select kind, name from (
       select 'schema' as kind, quote_ident(n.nspname) as name, n.nspowner as owner, 0 as place
       from pg_namespace n where n.nspname = $1
       union all
       select case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end, c.oid::regclass::text, c.relowner,
         case when right(c.relname, 8) = '_default' then 1 else 2 end
       from pg_class c
       where c.relnamespace = to_regnamespace(quote_ident($1)) and (c.relkind in ('r', 'p', 'v') or (c.relkind = 'S' and not exists (
         -- Those of columns go with their tables.
         select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i'))))
       union all
       select 'type', t.oid::regtype::text, t.typowner, 3
       from pg_type t where t.typnamespace = to_regnamespace(quote_ident($1)) and t.typtype = 'e'
       union all
       select 'function', p.oid::regprocedure::text, p.proowner, 4 from pg_proc p where p.pronamespace = to_regnamespace(quote_ident($1))
     ) o
     where o.owner is distinct from (select r.oid from pg_roles r where r.rolname = $2)
     order by place, name`,
    [schema, `${prefix}_owner`],
  )
  return rows.map(row => `alter ${row['kind']} ${row['name']} owner to ${quoted(prefix, 'owner')}`)
}

/** Makes the roles and hands over, in the transaction of the caller. Returns what was done. */
export async function applyRoles(client: Queryable, schema: string, prefix: string): Promise<RoleStep[]> {
  const { rows } = await client.query(inSchema(schema, 'select deployment from longshore.settings'))
  const done: RoleStep[] = []
  // Once more for what was made while the first locks were waited for.
  for (;;) {
    const steps = await roleSteps(client, schema, prefix, String(rows[0]?.['deployment']))
    if (steps.length === 0) break
    for (const step of steps) await client.query(step.sql).catch(error => explainRoles(error, steps))
    done.push(...steps)
  }
  await client.query(
    inSchema(
      schema,
      "insert into longshore.roles (prefix, checksum) values ($1, '') on conflict (only_row) do nothing",
    ),
    [prefix],
  )
  return done
}

function explainRoles(error: unknown, steps: readonly RoleStep[]): never {
  if ((error as { code?: unknown }).code !== '42501') throw error
  const missing = steps
    .filter(({ kind }) => kind === 'role')
    .map(({ name }) => `create role "${name}" nologin;`)
  throw new LongshoreError(
    'PERMISSION_DENIED',
    `this user may not make or hand over to roles (${(error as Error).message}): let one with CREATEROLE run it${
      missing.length > 0 ? `, or an administrator first run ${missing.join(' ')}` : ''
    }, and grant this user the owner role`,
    { cause: error },
  )
}

/** Whether what the roles have is to be granted again: it is asked for, or other grants were applied last. */
export const needsGrants = async (client: Queryable, roles: Roles, isAsked: boolean): Promise<boolean> =>
  (isAsked || roles.checksum !== grantsFile().checksum) && (await hasAllRoles(client, roles.prefix))

/** What the roles may do: everything else is taken from them. */
export async function grantsStep(client: Queryable, schema: string, prefix: string): Promise<RoleStep> {
  const names = GRANTED.map(role => quoted(prefix, role)).join(', ')
  // Not of partitions, which have none and may be dropped at any moment.
  const { rows } = await client.query(
    `select c.oid::regclass::text as name, c.relkind = 'S' as is_sequence from pg_class c
     where c.relnamespace = to_regnamespace(quote_ident($1)) and c.relkind in ('r', 'p', 'v', 'S') and not c.relispartition order by 1`,
    [schema],
  )
  const revokes = rows.map(
    row =>
      `revoke all on ${row['is_sequence'] ? 'sequence' : 'table'} ${row['name']} from public, ${names};\n`,
  )
  const sql = `revoke all on schema "${schema}" from public, ${names};
revoke all on all functions in schema "${schema}" from ${names};
${revokes.join('')}
${forInstallation(schema, prefix, grantsFile().sql)}`
  return { kind: 'grants', name: prefix, sql }
}

/** Whether every role is there: a database that was moved to another server may have lost them. */
async function hasAllRoles(client: Queryable, prefix: string): Promise<boolean> {
  const { rows } = await client.query(
    'select count(*)::int as found from pg_roles r where r.rolname = any ($1)',
    [ROLES.map(role => `${prefix}_${role}`)],
  )
  return rows[0]?.['found'] === ROLES.length
}

/** For the rest of this transaction: what is made belongs to the owner role, not to the user that migrates. */
export async function actAsOwner(client: Queryable, schema: string): Promise<void> {
  const roles = await readRoles(client, schema)
  if (!roles) return
  const owner = `${roles.prefix}_owner`
  const { rows } = await client.query(
    'select pg_get_userbyid(nspowner) = $2 as is_owner from pg_namespace where nspname = $1',
    [schema, owner],
  )
  if (!rows[0]?.['is_owner']) return
  await client.query(`set local role "${owner}"`)
}

/** The user that migrates must be able to act as the owner of the schema. */
export async function explainNotOwner(error: unknown, client: Queryable, schema: string): Promise<never> {
  if ((error as { code?: unknown }).code !== '42501') throw error
  const { rows } = await client.query(
    'select pg_get_userbyid(nspowner) as owner from pg_namespace where nspname = $1',
    [schema],
  )
  const owner = rows[0]?.['owner']
  throw new LongshoreError(
    'PERMISSION_DENIED',
    `Postgres refuses it: ${(error as Error).message}. ${
      owner === undefined
        ? 'Let a user that may create schemas in this database do it'
        : `Schema "${schema}" belongs to "${owner}": migrate as that role, or as a user that it is granted to`
    }`,
    { cause: error },
  )
}

interface Grant {
  /** To read, call or use it; to write all of its columns. */
  reads: boolean
  writes: boolean
  roles: string[]
}
/** By the names of tables, views and functions. */
let granted: Map<string, Grant[]> | undefined

/** The roles that may read or call it, or write it as they like. */
export function rolesFor(object: string, need: 'reads' | 'writes' = 'reads'): readonly string[] {
  if (!granted) {
    granted = new Map()
    for (const [, what = '', on = '', whom = ''] of grantsFile().sql.matchAll(
      /^grant ([^;]+?)\son\s+([^;]+?)\s+to ([^;]+);/gm,
    )) {
      const grant: Grant = {
        reads: /\b(select|execute|usage)\b/.test(what),
        writes: /\b(insert|update|delete)\b(?!\s*\()/.test(what),
        roles: [...whom.matchAll(/longshore_(\w+)/g)].map(([, role = '']) => role),
      }
      for (const [, name = ''] of on.matchAll(/\blongshore\.(\w+)/g))
        granted.set(name, [...(granted.get(name) ?? []), grant])
    }
  }
  return [...new Set((granted.get(object) ?? []).filter(grant => grant[need]).flatMap(grant => grant.roles))]
}
