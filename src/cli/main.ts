#!/usr/bin/env node
/** The command line: `longshore <command>`, one file a command. */
import { readFileSync } from 'node:fs'
import { Command } from 'commander'
import { LongshoreError } from '../job/errors.ts'
import { cut } from '../job/shown.ts'
import { ownFile } from '../runtime/own-files.ts'
import { tell, tellError, writeHelp } from './output.ts'

/** For output that is still being written. */
const LINGER_MS = 500

/** Each is loaded when it is asked for: to load all of them takes five times as long as to start Node. */
const COMMANDS: Readonly<Record<string, () => Promise<(program: Command) => void>>> = {
  cancel: async () => (await import('./cancel.ts')).addCancelCommand,
  dev: async () => (await import('./dev.ts')).addDevCommand,
  doctor: async () => (await import('./doctor.ts')).addDoctorCommand,
  drain: async () => (await import('./drain.ts')).addDrainCommand,
  explain: async () => (await import('./explain.ts')).addExplainCommand,
  groups: async () => (await import('./groups.ts')).addGroupsCommand,
  logs: async () => (await import('./logs.ts')).addLogsCommand,
  migrate: async () => (await import('./migrate.ts')).addMigrateCommand,
  properties: async () => (await import('./properties.ts')).addPropertiesCommand,
  queues: async () => (await import('./queues.ts')).addQueuesCommand,
  relay: async () => (await import('./relay.ts')).addRelayCommand,
  resume: async () => (await import('./drain.ts')).addResumeCommand,
  top: async () => (await import('./top.ts')).addTopCommand,
  watchdog: async () => (await import('./watchdog.ts')).addWatchdogCommand,
  worker: async () => (await import('./worker.ts')).addWorkerCommand,
  workflows: async () => (await import('./workflows.ts')).addWorkflowsCommand,
}

/** All of them, where the help or a mistake needs their names. */
function asked(name = ''): (() => Promise<(program: Command) => void>)[] {
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (command) return [command]
  return name === '--version' || name === '-V' ? [] : Object.values(COMMANDS)
}

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

for (const load of asked(process.argv[2])) (await load())(program)

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
