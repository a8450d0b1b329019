/** `longshore logs`: what the handler of a job has logged, how far it is and why its last attempt failed; or the same as it comes. */
import type { Command } from 'commander'
import type { Job } from '../job/job.ts'
import type { JobId } from '../job/job-id.ts'
import type { LogLine, Progress } from '../job/job-log.ts'
import { stackOf } from '../job/stored-error.ts'
import { withPool } from '../postgres/once.ts'
import { readJobs } from '../postgres/read-jobs.ts'
import { readLastLogs, readProgress } from '../postgres/read-logs.ts'
import { createProducer } from '../producer/create-producer.ts'
import {
  addDatabaseOptions,
  type DatabaseOptions,
  jobNotFound,
  requireDatabaseUrl,
  toId,
  toLimit,
} from './options.ts'
import { print, printJson } from './output.ts'

type Options = DatabaseOptions & { follow?: boolean; json?: boolean; limit: number }

export function addLogsCommand(program: Command): void {
  const command = program
    .command('logs')
    .argument('<job-id>', 'the job, as enqueue returned it')
    .description(
      'show what the handler of a job has logged, over all its runs, how far it is, and why its last attempt failed',
    )
    .option('--follow', 'show all lines, and more as they come, until the job has ended')
    .option('--limit <n>', 'without --follow: how many of the last lines', toLimit, 1000)
    .option('--json', 'print it as JSON; with --follow a line each, progress and error at the end')
  addDatabaseOptions(command).action(async (text: string, options: Options) => {
    const id = toId('job', text)
    if (options.follow) await follow(id, options)
    else await show(id, options)
  })
}

async function show(id: JobId, options: Options): Promise<void> {
  const where = { postgres: requireDatabaseUrl(options), schema: options.schema }
  await withPool(where, async (pool, schema) => {
    const [job] = await readJobs(pool, schema, [id])
    if (!job) throw jobNotFound(id, schema)
    const lines = await readLastLogs(pool, schema, id, options.limit)
    const progress = await readProgress(pool, schema, id)
    const { error } = job
    if (options.json) return printJson({ schema, id, progress: progress ?? null, error, lines })
    for (const line of lines) print(describe(line))
    if (progress) print(describeProgress(progress))
    if (lines.length === 0 && !progress) print(`job ${id} has logged nothing`)
    if (error) print(...describeError(job))
  })
}

async function follow(id: JobId, options: Options): Promise<void> {
  const producer = createProducer({ postgres: requireDatabaseUrl(options), schema: options.schema })
  const stop = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort())
  try {
    for await (const line of producer.followLogs(id, { signal: stop.signal }))
      if (options.json) printJson(line)
      else print(describe(line))
    const progress = await producer.getProgress(id)
    if (progress && options.json) printJson({ progress })
    else if (progress) print(describeProgress(progress))
    const job = await producer.get(id)
    if (job?.error && options.json) printJson({ error: job.error })
    else if (job?.error) print(...describeError(job))
  } catch (error) {
    if (!stop.signal.aborted) throw error
  } finally {
    await producer.close()
  }
}

function describe({ at, attempt, level, message, data }: LogLine): string {
  const facts = data === null ? '' : ` ${JSON.stringify(data)}`
  return `${at.toISOString()} #${attempt} ${level.padEnd(5)} ${message}${facts}`
}

function describeProgress({ done, total, attempt, at }: Progress): string {
  const share = total === null || total <= 0 ? '' : ` (${Math.floor((100 * done) / total)} %)`
  const of = total === null ? '' : ` of ${total}`
  return `progress: ${done}${of}${share}, attempt ${attempt}, ${at.toISOString()}`
}

/** Indented: line breaks in an error make no line that passes for one of ours. */
function describeError({ state, attempts, maxAttempts, error }: Job): string[] {
  const lines = error ? stackOf(error).split('\n') : []
  return [
    `error of the last attempt that failed (${state}, ${attempts} of ${maxAttempts} attempts):`,
    ...lines.map(line => `  ${line}`),
  ]
}
