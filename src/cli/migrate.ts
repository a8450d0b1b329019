/** `longshore migrate`: install or upgrade the schema. */
import type { Command } from 'commander'
import type { Duration } from '../job/duration.ts'
import { type MigrationStep, migrate } from '../postgres/migrate.ts'
import { addDatabaseOptions, type DatabaseOptions, requireDatabaseUrl } from './options.ts'
import { print, printJson, tell } from './output.ts'

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
        onNotice: message => tell(`longshore: note: ${message}`),
        onStep: step => {
          if (options.json) return
          if (options.dryRun) print(`-- ${step.kind} ${step.name}`, ...step.sql.trimEnd().split('\n'), '')
          // A hundred and more of them: their number is told at the end.
          else if (step.kind !== 'function') print(`${step.kind} ${step.name}`)
        },
      })
      const { schema, dryRun = false } = options
      if (options.json) printJson({ schema, dryRun, steps: steps.map(({ kind, name }) => ({ kind, name })) })
      else if (steps.length === 0) print(`nothing to do: schema ${schema} is current`)
      else if (dryRun) print(`-- ${steps.length} steps would run`)
      else print(summaryOf(schema, steps))
    },
  )
}

/** What was done, and after the first time what is next. */
function summaryOf(schema: string, steps: readonly MigrationStep[]): string {
  const kinds = [...new Set(steps.map(({ kind }) => kind))]
  const counted = kinds.map(of => {
    const count = steps.filter(({ kind }) => kind === of).length
    return `${count} ${count === 1 || of === 'grants' ? of : `${of}s`}`
  })
  const isFirst = steps.some(({ kind, name }) => kind === 'migration' && name.startsWith('0001_'))
  const next = isFirst
    ? '. Next: enqueue jobs, and run them with `longshore worker <module>`; with Redis start `longshore relay` too'
    : ''
  return `schema ${schema} is ${isFirst ? 'installed' : 'up to date'}: ${counted.join(', ')}${next}`
}
