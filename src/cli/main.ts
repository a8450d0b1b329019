#!/usr/bin/env node
/** The command line: `longshore <command>`, one file a command. */
import { readFileSync } from 'node:fs'
import { Command } from 'commander'
import { LongshoreError } from '../job/errors.ts'
import { cut } from '../job/shown.ts'
import { ownFile } from '../runtime/own-files.ts'
import { addCancelCommand } from './cancel.ts'
import { addDevCommand } from './dev.ts'
import { addDoctorCommand } from './doctor.ts'
import { addDrainCommands } from './drain.ts'
import { addExplainCommand } from './explain.ts'
import { addGroupsCommand } from './groups.ts'
import { addLogsCommand } from './logs.ts'
import { addMigrateCommand } from './migrate.ts'
import { tell, tellError, writeHelp } from './output.ts'
import { addPropertiesCommand } from './properties.ts'
import { addQueuesCommand } from './queues.ts'
import { addRelayCommand } from './relay.ts'
import { addTopCommand } from './top.ts'
import { addWatchdogCommand } from './watchdog.ts'
import { addWorkerCommand } from './worker.ts'
import { addWorkflowsCommand } from './workflows.ts'

/** For output that is still being written. */
const LINGER_MS = 500

const { version } = JSON.parse(readFileSync(ownFile('package.json'), 'utf8')) as {
  version: string
}

const program = new Command('longshore')
  .description('Background jobs for TypeScript services: Postgres decides, Redis hints.')
  .version(version)
  .showHelpAfterError('(add --help for the options)')
  .configureHelp({ sortSubcommands: true })
  .addHelpText(
    'after',
    `
Exit codes: 0 done, or stopped in order by SIGTERM or SIGINT; 1 failed; 2 wrong usage, settings or module; 3 doctor has found
something; when a second signal forced the end 130 (SIGINT) or 143 (SIGTERM).`,
  )
  .configureOutput({
    writeOut: writeHelp,
    outputError: text => tell(cut(text.trimEnd(), 1000)),
  })
  .exitOverride()

addCancelCommand(program)
addExplainCommand(program)
addDoctorCommand(program)
addDrainCommands(program)
addGroupsCommand(program)
addLogsCommand(program)
addMigrateCommand(program)
addPropertiesCommand(program)
addQueuesCommand(program)
addRelayCommand(program)
addTopCommand(program)
addWatchdogCommand(program)
addWorkerCommand(program)
addWorkflowsCommand(program)
addDevCommand(program)

// The reader of the pipe may have seen enough: `longshore logs <id> --follow | head`.
process.stdout.on('error', error => {
  if ('code' in error && error.code === 'EPIPE') process.exit(0)
  throw error
})

try {
  await program.parseAsync()
} catch (error) {
  process.exitCode = report(error)
}
// A module of the user's may hold the process with a pool or a timer; what was to be done is done.
setTimeout(() => process.exit(), LINGER_MS).unref()

function report(error: unknown): number {
  // Commander has already told what is wrong; asking for help or the version is no failure.
  if (
    error instanceof Error &&
    'exitCode' in error &&
    'code' in error &&
    String(error.code).startsWith('commander.')
  ) {
    return error.exitCode === 0 ? 0 : 2
  }
  if (error instanceof LongshoreError) {
    tellError(`longshore: ${error.message}`, `[${error.code}]`)
    return error.code === 'CONFIG_INVALID' || error.code === 'CONSTRAINT_INVALID' ? 2 : 1
  }
  tellError(`longshore: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`)
  return 1
}
