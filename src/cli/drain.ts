/** `longshore drain` and `longshore resume`: have workers take no more jobs, or take them again. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Command } from 'commander'
import { LongshoreError } from '../job/errors.ts'
import { type DrainedWorker, drainWorkers, readRunning } from '../postgres/drain-workers.ts'
import { withPool } from '../postgres/once.ts'
import { addDatabaseOptions, type DatabaseOptions, requireDatabaseUrl } from './options.ts'
import { print, printJson } from './output.ts'

type Options = DatabaseOptions & { json?: boolean; wait?: boolean }

const LOOK_MS = 250

export function addDrainCommand(program: Command): void {
  const command = program
    .command('drain')
    .description(
      'have workers take no more jobs; what they run goes on, and resume lets them take jobs again',
    )
    .option('--wait', 'end when they run nothing any more')
  addCommand(command, true)
}

export function addResumeCommand(program: Command): void {
  addCommand(program.command('resume').description('let drained workers take jobs again'), false)
}

function addCommand(command: Command, isToDrain: boolean): void {
  command
    .argument(
      '<workers...>',
      'ids, or names as in `longshore top`; a name means every live worker that has it',
    )
    .option('--json', 'print them as JSON')
  addDatabaseOptions(command).action(async (named: string[], options: Options) => {
    const where = { postgres: requireDatabaseUrl(options), schema: options.schema }
    await withPool(where, async (pool, schema) => {
      const workers = await drainWorkers(pool, schema, named, isToDrain)
      refuseUnknown(named, workers)
      while (options.wait && (await readRunning(pool, schema, workers)) > 0) await pause(LOOK_MS)
      if (options.json) printJson({ schema, workers })
      else for (const worker of workers) print(described(worker, isToDrain, options.wait === true))
    })
  })
}

function refuseUnknown(named: string[], workers: DrainedWorker[]): void {
  const unknown = named.filter(
    name => !workers.some(worker => worker.name === name || `${worker.id}` === name),
  )
  if (unknown.length === 0) return
  throw new LongshoreError(
    'CONFIG_INVALID',
    `no live worker has the id or name ${unknown.join(', ')}: \`longshore top --once\` lists them`,
  )
}

function described({ id, name, hasChanged }: DrainedWorker, isToDrain: boolean, hasWaited: boolean): string {
  const worker = `worker ${id} (${name})`
  const what = isToDrain
    ? `takes no more jobs${hasWaited ? ' and runs none' : `; let it go on with longshore resume ${id}`}`
    : 'takes jobs'
  return `${worker} ${what}${hasChanged ? '' : ', as before'}`
}
