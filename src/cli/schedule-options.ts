/** Owns the options that say how the jobs of one queue are spread over workers. */
import { type Command, InvalidArgumentError, Option } from 'commander'
import { BALANCE_STRATEGIES, SCHEDULE_MODES } from '../runtime/settings.ts'

export function addScheduleOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--schedule-mode <mode>',
        'copy a ready job to every worker that may run it, or to one',
      ).choices(SCHEDULE_MODES),
    )
    .addOption(
      new Option(
        '--balance-strategy <strategy>',
        'to which one: least queued and running, in turns, or any',
      ).choices(BALANCE_STRATEGIES),
    )
    .option('--fanout-width <n>', 'fanout to so many workers at most; 0: to all, of a crowd to 16', toWidth)
}

function toWidth(text: string): number {
  if (/^\d+$/.test(text) && Number(text) <= 1000) return Number(text)
  throw new InvalidArgumentError('It must be a whole number from 0 to 1000.')
}
