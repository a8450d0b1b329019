/** A terminal that programs believe in: util-linux's `script`, of 80 × 24. */
import { spawn, spawnSync } from 'node:child_process'
import { eventually } from './signals.ts'

/** Why there is none here; undefined when there is. */
export const NO_PTY =
  spawnSync('script', ['--version'], { encoding: 'utf8' }).stdout?.includes('util-linux') === true
    ? undefined
    : 'script of util-linux is not here'

export interface Pty {
  press(keys: string): void
  /** All that was written to the terminal so far. */
  screen(): string
  shows(text: string): Promise<void>
  readonly ended: Promise<void>
}

/** A shell command in a terminal of its own. */
export function startInPty(command: string, env: Record<string, string>): Pty {
  const child = spawn('script', ['-qec', `stty cols 80 rows 24; ${command}`, '/dev/null'], {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], TERM: 'xterm-256color', ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', chunk => {
    output += chunk
  })
  return {
    press: keys => child.stdin.write(keys),
    screen: () => output,
    shows: text => eventually(`the terminal shows ${text}`, async () => output.includes(text), 30_000),
    ended: new Promise(resolve => child.on('close', () => resolve())),
  }
}
