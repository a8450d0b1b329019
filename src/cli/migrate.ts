/** `longshore migrate`: install or upgrade the schema. */
import type { Command } from 'commander'
import type { Duration } from '../job/duration.ts'
import { migrate } from '../postgres/migrate.ts'
import { addDatabaseOptions, type DatabaseOptions, requireDatabaseUrl } from './options.ts'

export function addMigrateCommand(program: Command): void {
  const command = program
    .command('migrate')
    .description('install or upgrade the database schema; safe to run from many processes at once')
    .option(
      '--roles [prefix]',
      'also make the roles <prefix>_owner, _producer, _worker, _relay and _reader, and grant each what it needs; the prefix is the name of the schema unless given. Grant them to the users that your processes connect as',
    )
    .option('--dry-run', 'print the SQL that would run, change nothing')
    .option('--patience <duration>', 'how long to try again while a transaction holds tables', '2m')
    .option('--json', 'print the steps as JSON')
  addDatabaseOptions(command).action(
    async (
      options: DatabaseOptions & {
        dryRun?: boolean
        json?: boolean
        patience: Duration
        roles?: boolean | string
      },
    ) => {
      const steps = await migrate({
        postgres: requireDatabaseUrl(options),
        schema: options.schema,
        roles: options.roles ?? false,
        dryRun: options.dryRun ?? false,
        patience: options.patience,
        onNotice: message => void process.stderr.write(`longshore: note: ${message}\n`),
        onStep: step => {
          if (options.json) return
          if (options.dryRun) process.stdout.write(`-- ${step.kind} ${step.name}\n${step.sql.trimEnd()}\n\n`)
          else process.stdout.write(`${step.kind} ${step.name}\n`)
        },
      })
      if (options.json) {
        const shown = steps.map(({ kind, name }) => ({ kind, name }))
        process.stdout.write(
          `${JSON.stringify({ schema: options.schema, dryRun: options.dryRun ?? false, steps: shown })}\n`,
        )
      } else if (options.dryRun && steps.length > 0)
        process.stdout.write(`-- ${steps.length} steps would run\n`)
      else process.stdout.write(steps.length === 0 ? 'nothing to do: the schema is current\n' : 'done\n')
    },
  )
}
