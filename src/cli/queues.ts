/** `longshore queues`: show how the jobs of queues are spread over workers, or set it for one; and how many queues there may be. */
import { type Command, InvalidArgumentError } from 'commander'
import { LongshoreError } from '../job/errors.ts'
import { readMaxQueues, setMaxQueues } from '../postgres/max-queues.ts'
import { type Queue, readQueues, setQueue } from '../postgres/queue-settings.ts'
import { addDatabaseOptions, type DatabaseOptions, requireDatabaseUrl } from './options.ts'
import { print, printJson } from './output.ts'
import { addScheduleOptions } from './schedule-options.ts'

type Options = DatabaseOptions & {
  scheduleMode?: 'fanout' | 'balanced'
  balanceStrategy?: 'least-queue' | 'round-robin' | 'random'
  fanoutWidth?: number
  default?: boolean
  max?: number
  json?: boolean
}

export function addQueuesCommand(program: Command): void {
  const command = program
    .command('queues')
    .argument('[queue]', 'the queue to change')
    .description(
      'show how jobs of queues are spread over workers, or set it for one; running relays follow within a second. --max: how many queues there may be',
    )
  addScheduleOptions(command)
    .option('--default', "the relay's own settings hold for this queue again")
    .option('--max <n>', 'so many queues at most; jobs for more are refused', toMax)
    .option('--json', 'print the queues as JSON')
  addDatabaseOptions(command).action(async (queue: string | undefined, options: Options) => {
    const where = { postgres: requireDatabaseUrl(options), schema: options.schema }
    const { scheduleMode, balanceStrategy, fanoutWidth } = options
    const isChange =
      options.default === true ||
      scheduleMode !== undefined ||
      balanceStrategy !== undefined ||
      fanoutWidth !== undefined
    if (isChange && queue === undefined) {
      throw new LongshoreError(
        'CONFIG_INVALID',
        'name the queue to change: longshore queues <queue> --schedule-mode …',
      )
    }
    if (isChange && queue !== undefined) {
      const change = options.default
        ? { scheduleMode: null, balanceStrategy: null, fanoutWidth: null }
        : {
            ...(scheduleMode ? { scheduleMode } : {}),
            ...(balanceStrategy ? { balanceStrategy } : {}),
            ...(fanoutWidth === undefined ? {} : { fanoutWidth }),
          }
      await setQueue({ ...where, name: queue, ...change })
    }
    const maxQueues =
      options.max === undefined
        ? await readMaxQueues(where)
        : await setMaxQueues({ ...where, maxQueues: options.max })
    const found = await readQueues(where)
    const shown = queue === undefined ? found : found.filter(({ name }) => name === queue)
    if (options.json) return printJson({ schema: options.schema, maxQueues, queues: shown })
    if (options.max !== undefined) print(`there may be at most ${maxQueues} queues`)
    if (shown.length > 0) print(...shown.map(describe))
    else print(queue === undefined ? 'there are no queues yet' : `there is no queue ${queue}`)
  })
}

function toMax(text: string): number {
  if (/^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= 1_000_000) return Number(text)
  throw new InvalidArgumentError('It must be a whole number from 1 to 1000000.')
}

function describe({ name, scheduleMode, balanceStrategy, fanoutWidth }: Queue): string {
  const width = fanoutWidth === null ? null : fanoutWidth === 0 ? 'to all' : `width ${fanoutWidth}`
  const set = [scheduleMode, balanceStrategy, width].filter(item => item !== null)
  return `${name}: ${set.length > 0 ? set.join(', ') : "the relay's own settings"}`
}
