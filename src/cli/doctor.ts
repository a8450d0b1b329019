/** `longshore doctor`: audit a live system, and repair it. */
import type { Command } from 'commander'
import type { Duration } from '../job/duration.ts'
import { type DoctorFinding, type DoctorReport, doctor } from '../relay/doctor.ts'
import {
  addDatabaseOptions,
  addRedisOption,
  type DatabaseOptions,
  requireDatabaseUrl,
  toDuration,
} from './options.ts'
import { print, printJson, tellInPlace } from './output.ts'

type Options = DatabaseOptions & {
  redisUrl?: string
  repair?: boolean
  grace?: Duration
  pageSize?: number
  pause?: Duration
  json?: boolean
  quiet?: boolean
}

const NOT_IN_ORDER = 3

export function addDoctorCommand(program: Command): void {
  const command = program
    .command('doctor')
    .description('look whether every promise of longshore holds on a live system; stops nothing')
    .option('--repair', 'repair what is safe to repair, and say what was done; without it nothing is changed')
    .option(
      '--grace <duration>',
      'how late rescue, relay, due jobs and the end of groups may be (default 10s)',
      toDuration,
    )
    .option('--page-size <rows>', 'rows looked at in one statement (default 2000)', Number)
    .option('--pause <duration>', 'rest after each page, for less load (default 10ms)', toDuration)
    .option('--json', 'print one JSON object')
    .option('--quiet', 'no progress on stderr (there is none anyway unless that is a terminal)')
    .addHelpText(
      'after',
      `
What is found is looked at again before it is told, since a live system moves. Repairs are small transactions that
look again under their locks, so --repair may be run at any time, and again. What would need a guess is left to
you, with advice.

Exit codes: 0 everything is in order, or was repaired; 3 something is not; 1 it could not be looked at; 2 wrong usage.

Examples:
  longshore doctor --database-url postgres://… --redis-url redis://…
  longshore doctor --repair
  longshore doctor --json | jq '.violations[].problem'`,
    )
  addRedisOption(addDatabaseOptions(command)).action(async (options: Options) => {
    const isShown = process.stderr.isTTY === true && !options.quiet
    const report = await doctor({
      postgres: requireDatabaseUrl(options),
      schema: options.schema,
      ...(options.redisUrl ? { redis: options.redisUrl } : {}),
      ...(options.repair ? { repair: true } : {}),
      ...(options.grace === undefined ? {} : { grace: options.grace }),
      ...(options.pageSize === undefined ? {} : { pageSize: options.pageSize }),
      ...(options.pause === undefined ? {} : { pause: options.pause }),
      ...(isShown ? { onProgress: showProgress } : {}),
    })
    if (isShown) tellInPlace('')
    if (options.json) printJson(report)
    else print(...describe(report))
    if (!report.isHealthy) process.exitCode = NOT_IN_ORDER
  })
}

function showProgress({ what, rows }: { what: string; rows: number }): void {
  tellInPlace(`looking at ${what}${rows > 0 ? `: ${rows}` : ''}`)
}

function describe(report: DoctorReport): string[] {
  const { jobs = 0, finished_jobs: finished = 0, groups = 0, workflows = 0 } = report.looked
  const lines = [
    `looked at ${jobs} unfinished and ${finished} finished jobs, ${groups} groups, ${workflows} workflows`,
    ...report.warnings.map(warning => `warning: ${warning}`),
    ...list('repaired', report.repaired, report.repairedCount),
    ...list('wrong', report.violations, report.violationCount),
  ]
  if (report.isHealthy)
    lines.push(report.repairedCount > 0 ? 'everything is in order now' : 'everything is in order')
  else
    lines.push(
      report.violationCount === 1
        ? '1 thing is not in order'
        : `${report.violationCount} things are not in order`,
    )
  return lines
}

function list(word: string, findings: readonly DoctorFinding[], count: number): string[] {
  const lines = findings.flatMap(({ invariant, problem, jobId, remedy }) => [
    `${word}: ${jobId ? `job ${jobId}: ` : ''}${problem} [invariant ${invariant}]`,
    `    ${remedy}`,
  ])
  if (count > findings.length) lines.push(`${word}: ${count - findings.length} more`)
  return lines
}
