/** Owns the options that say how jobs are spread over workers. */
import { type Command, Option } from 'commander'

export function addScheduleOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--schedule-mode <mode>',
        'copy a ready job to every worker that may run it, or to one (TASK_SCHEDULE_MODE, default fanout)',
      ).choices(['fanout', 'balanced']),
    )
    .addOption(
      new Option(
        '--balance-strategy <strategy>',
        'to which one: least queued and running, in turns, or any (TASK_BALANCE_STRATEGY, default least-queue)',
      ).choices(['least-queue', 'round-robin', 'random']),
    )
    .option(
      '--fanout-width <n>',
      'fanout to so many workers at most; 0: to all (TASK_FANOUT_WIDTH, default 0)',
      Number,
    )
}
