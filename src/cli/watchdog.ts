/** `longshore watchdog`: show or set when a group that does not move is reported, and whether it is cancelled. */
import type { Command } from 'commander'
import { type Duration, shownDuration } from '../job/duration.ts'
import { readWatchdog, setWatchdog } from '../postgres/watchdog-settings.ts'
import { addDatabaseOptions, type DatabaseOptions, requireDatabaseUrl, toDuration } from './options.ts'
import { print, printJson } from './output.ts'

type Options = DatabaseOptions & { after?: Duration; cancel?: boolean; json?: boolean }

export function addWatchdogCommand(program: Command): void {
  const command = program
    .command('watchdog')
    .description(
      'show or set when a group that does not move although it could is reported, and whether it is cancelled then',
    )
    .option('--after <duration>', 'how long it may stand still, such as 10m', toDuration)
    .option('--cancel', 'cancel it')
    .option('--no-cancel', 'only report it')
    .option('--json', 'print the settings as JSON')
  addDatabaseOptions(command).action(async ({ after, cancel, json, ...options }: Options) => {
    const where = { postgres: requireDatabaseUrl(options), schema: options.schema }
    const isChange = after !== undefined || cancel !== undefined
    const settings = isChange
      ? await setWatchdog({
          ...where,
          ...(after === undefined ? {} : { after }),
          ...(cancel === undefined ? {} : { cancel }),
        })
      : await readWatchdog(where)
    if (json) return printJson({ schema: options.schema, ...settings })
    const then = settings.cancel ? 'reported and cancelled' : 'reported'
    print(`a group that does not move for ${shownDuration(settings.afterMs)} although it could is ${then}`)
  })
}
