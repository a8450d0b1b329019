/** `longshore cancel`: cancel a job, whatever its state. */
import type { Command } from 'commander'
import { cancelJobs } from '../postgres/cancel-jobs.ts'
import { withPool } from '../postgres/once.ts'
import { addDatabaseOptions, type DatabaseOptions, jobNotFound, requireDatabaseUrl, toId } from './options.ts'
import { print, printJson } from './output.ts'

export function addCancelCommand(program: Command): void {
  const command = program
    .command('cancel')
    .argument('<job-id>', 'the job, as enqueue returned it')
    .description('cancel a job: it never starts, or, if it runs, its worker is told and it ends as cancelled')
    .option('--json', 'print the answer as JSON')
  addDatabaseOptions(command).action(async (text: string, options: DatabaseOptions & { json?: boolean }) => {
    const id = toId('job', text)
    const where = { postgres: requireDatabaseUrl(options), schema: options.schema }
    const answers = await withPool(where, (pool, schema) => cancelJobs(pool, schema, [id]))
    const answer = answers.get(id) ?? 'unknown'
    if (answer === 'unknown') throw jobNotFound(id, options.schema)
    if (options.json) printJson({ schema: options.schema, id, answer })
    else print(`job ${id}: ${ANSWERS[answer]}`)
  })
}

const ANSWERS = {
  cancelled: 'cancelled',
  cancelling: 'being cancelled; its worker has been told',
  finished: 'had ended before, nothing was changed',
}
