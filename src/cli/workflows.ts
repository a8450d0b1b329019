/** `longshore workflows`: which job has the turn, what is halted; and let one go on. */
import type { Command } from 'commander'
import { LongshoreError } from '../job/errors.ts'
import { resumeWorkflow } from '../postgres/groups.ts'
import { listWorkflows, type WorkflowStatus } from '../postgres/list-workflows.ts'
import { withPool } from '../postgres/once.ts'
import { addDatabaseOptions, type DatabaseOptions, requireDatabaseUrl, toLimit } from './options.ts'
import { print, printJson } from './output.ts'

type Options = DatabaseOptions & { resume?: boolean; json?: boolean; limit: number }

export function addWorkflowsCommand(program: Command): void {
  const command = program
    .command('workflows')
    .argument('[key]', 'the workflow to look at')
    .description(
      'list the workflows that have jobs or are halted, halted ones first; or let a halted one go on',
    )
    .option('--resume', 'let the workflow go on with its next job')
    .option('--limit <n>', 'workflows to list', toLimit, 50)
    .option('--json', 'print it as JSON')
  addDatabaseOptions(command).action(async (key: string | undefined, options: Options) => {
    const where = { postgres: requireDatabaseUrl(options), schema: options.schema }
    if (options.resume && key === undefined) {
      throw new LongshoreError(
        'CONFIG_INVALID',
        'name the workflow to resume: longshore workflows <key> --resume',
      )
    }
    await withPool(where, async (pool, schema) => {
      const answer = options.resume && key !== undefined ? await resumeWorkflow(pool, schema, key) : undefined
      const workflows = await listWorkflows(pool, schema, { key, limit: options.limit }).catch(error => {
        // A user may have the right to resume it and not to read it: what was done is told all the same.
        if (answer === undefined || error?.code !== 'PERMISSION_DENIED') throw error
        return []
      })
      if (options.json) {
        printJson({ schema, ...(answer === undefined ? {} : { answer }), workflows })
        return
      }
      if (answer !== undefined) print(`workflow ${key} ${ANSWERS[answer]}`)
      if (workflows.length > 0) print(...workflows.map(describe))
      else if (key === undefined) print('no workflow has jobs or is halted')
      else if (!options.resume) print(`workflow ${key} has no jobs and is not halted`)
    })
  })
}

function describe({ key, waiting, holder, haltedBy }: WorkflowStatus): string {
  const error = haltedBy?.error ? ` (${haltedBy.error})` : ''
  return [
    `${key}: ${haltedBy ? `halted by the failure of job ${haltedBy.id}${error}` : 'goes on'}`,
    holder ? `job ${holder.id} of task ${holder.task} has the turn, ${holder.state}` : 'no job has the turn',
    `${waiting} waiting`,
    ...(haltedBy ? ['--resume lets it go on'] : []),
  ].join('; ')
}

const ANSWERS = {
  resumed: 'goes on',
  not_halted: 'was not halted, nothing was changed',
}
