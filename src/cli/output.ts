/**
 * Owns all that the command line writes, but for the live screen of `top`: names, errors and logs are texts of others, so nothing in
 * them may steer the terminal. Line breaks come from here only.
 */
import { visible, visibleJson } from '../runtime/visible.ts'

/** To standard output, each on a line of its own. */
export function print(...lines: string[]): void {
  process.stdout.write(toLines(lines))
}

/** One line, or many with an indent. */
export function printJson(value: unknown, indent?: number): void {
  process.stdout.write(`${visibleJson(JSON.stringify(value, null, indent))}\n`)
}

/** Lines of a frame, which hold plain texts and colours of ours. */
export function printPainted(lines: readonly string[]): void {
  process.stdout.write(`${lines.join('\n')}\n`)
}

/** To standard error, each on a line of its own. */
export function tell(...lines: string[]): void {
  process.stderr.write(toLines(lines))
}

/** An error with its stack or its list: what follows the first line is indented, so that none of it passes for a line of ours. */
export function tellError(text: string, code = ''): void {
  const [first = '', ...others] = text.split('\n')
  if (others.length === 0) tell(code ? `${first} ${code}` : first)
  else tell(first, ...others.map(line => (/^\s/.test(line) ? line : `    ${line}`)), ...(code ? [code] : []))
}

/** On a terminal: in place of what was told before. */
export function tellInPlace(text: string): void {
  process.stderr.write(`\r\u001b[K${visible(text)}`)
}

/** What commander makes of our own texts, line breaks included. */
export function writeHelp(text: string): void {
  process.stdout.write(text)
}

const toLines = (lines: readonly string[]): string => lines.map(line => `${visible(line)}\n`).join('')
