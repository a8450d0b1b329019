/** `longshore top`: the whole deployment at a glance, again and again, or once for scripts. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Command } from 'commander'
import { toTimerMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import { checkDatabase } from '../postgres/check-database.ts'
import { openPool, type Pool } from '../postgres/connect.ts'
import { withPool } from '../postgres/once.ts'
import { type Overview, readOverview } from '../postgres/read-overview.ts'
import { checkSchemaName } from '../postgres/schema-name.ts'
import { openScreen } from './live-screen.ts'
import { addDatabaseOptions, type DatabaseOptions, requireDatabaseUrl, toDuration } from './options.ts'
import { printJson, printPainted } from './output.ts'
import { createRateMeter, type Rates } from './rates.ts'
import { frameLines } from './top-frame.ts'

type Options = DatabaseOptions & { interval: number; once?: boolean; json?: boolean }

const LEAST_INTERVAL_MS = 100
/** What a line in a pipe may hold. */
const PIPE_COLUMNS = 160
/** A look that takes longer is told. */
const SLOW_MS = 2000
const LEAVE_MS = 500

export function addTopCommand(program: Command): void {
  const command = program
    .command('top')
    .description(
      'watch queues, workers, limits and groups in the terminal; q quits. Reads little, whatever there is',
    )
    .option('--interval <time>', 'time between two looks, such as 500ms or 5s', toInterval, 1000)
    .option('--once', 'print one frame and end; looks twice, an interval apart, to tell the throughput')
    .option('--json', 'with --once: print what was seen as JSON')
    .addHelpText(
      'after',
      `
A number with + was counted up to a bound; one with ~ is told by the workers, some seconds ago, and one that serves several queues
counts for each. Colours are left out when NO_COLOR is set.`,
    )
  addDatabaseOptions(command).action(async (options: Options) => {
    const postgres = requireDatabaseUrl(options)
    if (options.once) return once(postgres, options)
    if (options.json)
      throw new LongshoreError('CONFIG_INVALID', '--json goes with --once: longshore top --once --json')
    if (!process.stdout.isTTY) {
      throw new LongshoreError(
        'CONFIG_INVALID',
        'this is no terminal: longshore top --once prints one frame, --once --json one for scripts',
      )
    }
    await watch(postgres, options)
  })
}

function toInterval(text: string): number {
  const ms = toTimerMs(toDuration(text), '--interval')
  if (ms >= LEAST_INTERVAL_MS) return ms
  throw new LongshoreError(
    'CONFIG_INVALID',
    `--interval must be at least ${LEAST_INTERVAL_MS}ms; got ${text}`,
  )
}

const hasColors = (): boolean => process.stdout.isTTY === true && !process.env['NO_COLOR']

async function once(postgres: string, { schema: given, interval, json }: Options): Promise<void> {
  await withPool({ postgres, schema: given }, async (pool, schema) => {
    const meter = createRateMeter()
    meter(await readOverview(pool, schema))
    await pause(interval)
    const overview = await readOverview(pool, schema)
    const rates = meter(overview)
    if (json) {
      printJson({ schema, ...overview, rates })
      return
    }
    const size = { columns: process.stdout.columns || PIPE_COLUMNS, rows: Number.POSITIVE_INFINITY }
    printPainted(frameLines({ schema, overview, rates }, size, hasColors()))
  })
}

async function watch(postgres: string, { schema: given, interval }: Options): Promise<void> {
  const schema = checkSchemaName(given)
  const pool = openPool(postgres, 1, () => undefined) // the look under way is told
  try {
    // What is wrong from the beginning is told as any command tells it.
    await checkDatabase(pool, schema)
    await watchWith(pool, schema, interval, await readOverview(pool, schema))
  } finally {
    // A server that is silent is not waited for.
    await Promise.race([pool.end(), pause(LEAVE_MS, undefined, { ref: false })])
  }
}

async function watchWith(pool: Pool, schema: string, interval: number, first: Overview): Promise<void> {
  const meter = createRateMeter()
  let overview = first
  let rates: Rates | null = meter(first)
  let error: string | undefined
  let askedAt = 0
  let isAsking = false
  const draw = () => {
    const trouble = error ?? (isAsking ? slowness(performance.now() - askedAt) : undefined)
    screen.draw(
      frameLines(
        { schema, overview, rates, hint: 'q quits', ...(trouble ? { trouble } : {}) },
        screen.size,
        hasColors(),
      ),
    )
  }
  const look = async () => {
    isAsking = true
    askedAt = performance.now()
    try {
      overview = await readOverview(pool, schema)
      rates = meter(overview)
      error = undefined
    } catch (failure) {
      error = `Postgres: ${failure instanceof Error ? failure.message || failure.name : String(failure)}; trying again. Below is what was last seen`
    }
    isAsking = false
  }
  const screen = openScreen(draw)
  const tick = () => {
    if (!isAsking) look().then(draw, fail)
    // The clock goes on while Postgres is silent.
    else if (performance.now() - askedAt > SLOW_MS) draw()
  }
  let fail: (failure: unknown) => void = () => undefined
  const failed = new Promise<never>((_, reject) => {
    fail = reject
  })
  const timer = setInterval(tick, interval)
  try {
    draw()
    await Promise.race([screen.ended, failed])
  } finally {
    clearInterval(timer)
    screen.restore()
  }
}

const slowness = (ms: number): string | undefined =>
  ms > SLOW_MS
    ? `Postgres has not answered for ${Math.round(ms / 1000)}s. Below is what was last seen`
    : undefined
