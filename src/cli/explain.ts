/** `longshore explain`: why a job is not running, where it runs, or how it ended. */
import type { Command } from 'commander'
import { explainJob } from '../postgres/explain-job.ts'
import { withPool } from '../postgres/once.ts'
import { addDatabaseOptions, type DatabaseOptions, jobNotFound, requireDatabaseUrl, toId } from './options.ts'
import { print, printJson } from './output.ts'

export function addExplainCommand(program: Command): void {
  const command = program
    .command('explain')
    .argument('<job-id>', 'the job, as enqueue returned it')
    .description(
      'tell why a job is not running: what it waits for, who holds its slots, which worker it lacks; or where it runs, or how it ended',
    )
    .option('--json', 'print it as JSON, with all that is named')
  addDatabaseOptions(command).action(async (text: string, options: DatabaseOptions & { json?: boolean }) => {
    const id = toId('job', text)
    const where = { postgres: requireDatabaseUrl(options), schema: options.schema }
    const explanation = await withPool(where, (pool, schema) => explainJob(pool, schema, id))
    if (!explanation) throw jobNotFound(id, options.schema)
    const { task, state, reasons } = explanation
    if (options.json) printJson(explanation)
    else print(`job ${id} of task ${task} is ${state}`, ...reasons.map(({ sentence }) => `- ${sentence}`))
  })
}
