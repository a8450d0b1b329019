/** `longshore logs`: what the handler of a job has logged, and how far it is; or the same as it comes. */
import type { Command } from 'commander'
import type { JobId } from '../job/job-id.ts'
import type { LogLine, Progress } from '../job/job-log.ts'
import { withPool } from '../postgres/once.ts'
import { hasEnded, readLastLogs, readProgress } from '../postgres/read-logs.ts'
import { createProducer } from '../producer/create-producer.ts'
import {
  addDatabaseOptions,
  type DatabaseOptions,
  jobNotFound,
  requireDatabaseUrl,
  toId,
  toLimit,
} from './options.ts'

type Options = DatabaseOptions & { follow?: boolean; json?: boolean; limit: number }

export function addLogsCommand(program: Command): void {
  const command = program
    .command('logs')
    .argument('<job-id>', 'the job, as enqueue returned it')
    .description('show what the handler of a job has logged, over all its runs, and how far it is')
    .option('--follow', 'show all lines, and more as they come, until the job has ended')
    .option('--limit <n>', 'without --follow: how many of the last lines', toLimit, 1000)
    .option('--json', 'print it as JSON; with --follow a line each, progress at the end')
  addDatabaseOptions(command).action(async (text: string, options: Options) => {
    const id = toId('job', text)
    if (options.follow) await follow(id, options)
    else await show(id, options)
  })
}

async function show(id: JobId, options: Options): Promise<void> {
  const where = { postgres: requireDatabaseUrl(options), schema: options.schema }
  await withPool(where, async (pool, schema) => {
    if ((await hasEnded(pool, schema, id)) === undefined) throw jobNotFound(id, schema)
    const lines = await readLastLogs(pool, schema, id, options.limit)
    const progress = await readProgress(pool, schema, id)
    if (options.json) return print(JSON.stringify({ schema, id, progress: progress ?? null, lines }))
    for (const line of lines) print(describe(line))
    if (progress) print(describeProgress(progress))
    if (lines.length === 0 && !progress) print(`job ${id} has logged nothing`)
  })
}

async function follow(id: JobId, options: Options): Promise<void> {
  const producer = createProducer({ postgres: requireDatabaseUrl(options), schema: options.schema })
  const stop = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort())
  try {
    for await (const line of producer.followLogs(id, { signal: stop.signal }))
      print(options.json ? JSON.stringify(line) : describe(line))
    const progress = await producer.getProgress(id)
    if (progress) print(options.json ? JSON.stringify({ progress }) : describeProgress(progress))
  } catch (error) {
    if (!stop.signal.aborted) throw error
  } finally {
    await producer.close()
  }
}

const print = (text: string) => void process.stdout.write(`${text}\n`)

/** What a handler logged must not steer the terminal. */
const harmless = (text: string) =>
  text.replace(/\p{Cc}/gu, each => `\\x${each.charCodeAt(0).toString(16).padStart(2, '0')}`)

function describe({ at, attempt, level, message, data }: LogLine): string {
  const facts = data === null ? '' : ` ${JSON.stringify(data)}`
  return harmless(`${at.toISOString()} #${attempt} ${level.padEnd(5)} ${message}${facts}`)
}

function describeProgress({ done, total, attempt, at }: Progress): string {
  const share = total === null || total <= 0 ? '' : ` (${Math.floor((100 * done) / total)} %)`
  const of = total === null ? '' : ` of ${total}`
  return `progress: ${done}${of}${share}, attempt ${attempt}, ${at.toISOString()}`
}
