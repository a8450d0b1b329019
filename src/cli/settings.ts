/** Owns settings on the command line: their flags and help from the table, reading them, and `--print-config`. */
import { type Command, Option } from 'commander'
import { type Config, type ConfigFile, type Effective, readConfig, toFlag } from '../runtime/config.ts'
import { type Problem, refuse, toProblems } from '../runtime/problems.ts'
import { entriesOf, type Section, type Setting, type Command as Settled } from '../runtime/settings.ts'
import { loadConfigFile } from './config-file.ts'
import { print, printJson } from './output.ts'

export const NO_DATABASE =
  'no database given: pass --database-url postgres://user@host/name, set DATABASE_URL, or put databaseUrl into the config file'

const EXIT_CODES = `
Flags come before the environment, that before the config file, that before the defaults.

Exit codes: 0 it was stopped in order; 1 it failed; 2 wrong usage, settings or module; when a second signal forced the
end 130 (SIGINT) or 143 (SIGTERM).`

/** The flags of a command that runs until it is stopped. */
export function addSettings(command: Command, section: Settled): Command {
  addFlags(command, section)
  addFlags(command, 'shared')
  return addConfigFlag(command)
    .option('--print-config', 'print the settings that hold, and where each comes from; then end')
    .option('--json', 'print them as JSON')
    .addHelpText('after', EXIT_CODES)
}

export function addConfigFlag(command: Command): Command {
  return command.option(
    '--config <file>',
    'config file (default: longshore.config.json, .js or .mjs here, if there is one; env: LONGSHORE_CONFIG)',
  )
}

/** Texts only: whatever is wrong with them is told together with what is wrong elsewhere. */
export function addFlags(
  command: Command,
  section: Section,
  isWanted: (key: string) => boolean = () => true,
): void {
  for (const [key, setting] of entriesOf(section)) {
    if (!isWanted(key)) continue
    command.addOption(new Option(`--${toFlag(key)} ${setting.type.takes}`, help(setting)))
    const { each } = setting
    if (!each) continue
    command.addOption(
      new Option(`--${each.flag} ${each.takes}`, each.about).argParser<string[]>((item, earlier) => [
        ...(earlier ?? []),
        item,
      ]),
    )
  }
}

const help = (setting: Setting): string =>
  `${setting.about} (default: ${defaultOf(setting)}; env: ${setting.env})`

const defaultOf = ({ fallback, type, unset }: Setting): string =>
  fallback === undefined ? (unset ?? 'none') : type.show(fallback)

type Values<C extends Settled> = Config<C>['values'] & { databaseUrl: string }

/** Runs a command with its settings, unless some are wrong (then all problems are told) or `--print-config` was asked for. */
export async function withSettings<C extends Settled>(
  section: C,
  flags: Readonly<Record<string, unknown>>,
  run: (settings: Values<C>) => Promise<void>,
): Promise<void> {
  const { file, problem } = await tryConfigFile(flags)
  const config = readConfig({ section, flags, file })
  const problems = [...problem, ...config.problems]
  const isGiven = config.settings.some(({ key, source }) => key === 'databaseUrl' && source !== 'default')
  // A file that cannot be read may well name it.
  if (!isGiven && problem.length === 0) problems.push({ code: 'CONFIG_INVALID', message: NO_DATABASE })
  if (flags['printConfig'] && flags['json']) printJson(toPrinted(config.settings, problems), 2)
  else if (flags['printConfig']) print(...toTable(config.settings))
  refuse(problems)
  if (!flags['printConfig']) await run(config.values as Values<C>)
}

/** The settings that a command without a section has flags for, put where commander keeps its options. */
export async function fillShared(command: Command): Promise<void> {
  const flags = command.opts()
  const isWanted = (key: string) => command.options.some(option => option.attributeName() === key)
  const { file, problem } = await tryConfigFile(flags)
  const { settings, problems } = readConfig({ isWanted, flags, file })
  refuse([...problem, ...problems])
  for (const { key, value } of settings) command.setOptionValueWithSource(key, value, 'config')
}

async function tryConfigFile(
  flags: Readonly<Record<string, unknown>>,
): Promise<{ file: ConfigFile | undefined; problem: readonly Problem[] }> {
  try {
    return { file: await loadConfigFile(flags['config'] as string | undefined), problem: [] }
  } catch (error) {
    return { file: undefined, problem: toProblems(error) }
  }
}

const nameOf = ({ section, key }: Effective): string => (section === 'shared' ? key : `${section}.${key}`)

const sourceOf = ({ source, value, setting }: Effective): string =>
  source === 'default' && value === undefined ? `default: ${defaultOf(setting)}` : source

const showValue = ({ value, setting, source }: Effective): string =>
  value === undefined ? (source === 'default' ? '-' : '(wrong)') : setting.type.show(value)

function toTable(settings: readonly Effective[]): string[] {
  const rows = settings.map(
    effective => [nameOf(effective), showValue(effective), sourceOf(effective)] as const,
  )
  const width = (at: 0 | 1) => Math.min(60, Math.max(...rows.map(row => row[at].length)))
  return rows.map(([name, value, source]) => `${name.padEnd(width(0))}  ${value.padEnd(width(1))}  ${source}`)
}

/** In the shape of a config file, with a value and a source in the place of each setting. */
function toPrinted(settings: readonly Effective[], problems: readonly Problem[]): object {
  const of = (section: Section) =>
    settings
      .filter(effective => effective.section === section)
      .map(
        effective => [effective.key, { value: jsonValue(effective), source: sourceOf(effective) }] as const,
      )
  const sections = [...new Set(settings.map(({ section }) => section))].filter(
    section => section !== 'shared',
  )
  const printed = {
    ...Object.fromEntries(of('shared')),
    ...Object.fromEntries(sections.map(section => [section, Object.fromEntries(of(section))])),
  }
  return { settings: printed, problems: problems.map(problem => problem.message) }
}

/** As a config file may say it: texts without credentials, durations with their unit. */
function jsonValue({ value, setting }: Effective): unknown {
  if (value === undefined) return null
  const shown = setting.type.show(value)
  return typeof value === 'object' || String(value) === shown ? value : shown
}
