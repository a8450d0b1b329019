/**
 * Owns the shape of the database: applies `migrations/*.sql` once and in order, and re-creates the functions under
 * `migrations/functions/<step>/` whose text has changed. Processes go on meanwhile: a step that would have to wait for an open transaction,
 * with all others behind it, is tried again later.
 */
import pg from 'pg'
import { checkOptions } from '../job/check-options.ts'
import { type Duration, toTimerMs } from '../job/duration.ts'
import type { Queryable } from '../job/queryable.ts'
import { applySteps } from './apply-steps.ts'
import { connectionConfig } from './connect.ts'
import type { PostgresConfig } from './postgres-config.ts'
import { choosePrefix, explainNotOwner, grantsStep, needsGrants, readRoles, roleSteps } from './roles.ts'
import { checkSchemaName, DEFAULT_SCHEMA, inSchema } from './schema-name.ts'
import { checkServerVersion } from './server-version.ts'
import { checkSession, pinSession } from './session.ts'
import { type MigrationStep, stepsLeft, toStep } from './steps-left.ts'
import { explainUnavailable, toUnavailable } from './unavailable.ts'

export type { MigrationStep } from './steps-left.ts'

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
   * How long to try again a step whose tables another open transaction locks. Each try waits a second for them at most, so
   * that other transactions do not wait behind it for longer. Default `'2m'`.
   */
  patience?: Duration
  /** Told each step as it is done (or would be done). */
  onStep?: (step: MigrationStep) => void
  /** Told what is left to be done by a user with more rights. */
  onNotice?: (message: string) => void
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
      : await applySteps(client, schema, {
          roles: options.roles ?? false,
          patienceMs,
          onStep: step => options.onStep?.(step),
        })
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
