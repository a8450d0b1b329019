/** The command line, or another script, as a user runs it: a process of its own, with a bare environment. */
import { type ChildProcess, spawn } from 'node:child_process'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

export interface Cli {
  readonly child: ChildProcess
  /** Resolves when its output contains the text; rejects when it ends first. */
  says(text: string): Promise<void>
  /** Its output so far. */
  said(): string
  readonly ended: Promise<{ code: number | null; stdout: string; stderr: string }>
}

export const spawnCli = (args: string[], env: Record<string, string> = {}, cwd = process.cwd()): Cli =>
  start([resolve('dist/cli/main.js'), ...args], env, cwd)

/** A compiled file. */
export const spawnFile = (file: string, args: string[], env: Record<string, string> = {}): Cli =>
  start([file, ...args], env)

/** Compiled once for all tests, see build-scripts.ts. */
export const BUILT_SCRIPTS = [
  'examples/build-graph',
  'examples/control-jobs',
  'examples/first-job',
  'examples/follow-logs',
  'examples/halted-workflow',
  'examples/live-group',
  'examples/own-metrics',
  'examples/traced-job',
  'test/nemesis/produce',
  'test/nemesis/relay',
  'test/nemesis/work',
  'test/support/blocking-worker',
  'test/support/crowd-worker',
  'test/support/enqueue-main',
  'test/support/heavy-worker',
  'test/support/relay-main',
  'test/support/task-worker',
  'test/support/traced-worker',
  'test/support/without-tracing',
].map(name => `${name}.ts`)
/** Under node_modules, because nothing else looks there. */
export const BUILT_FOLDER = 'node_modules/.longshore-scripts'

export const spawnScript = (script: string, args: string[], env: Record<string, string> = {}): Cli =>
  BUILT_SCRIPTS.includes(script)
    ? start([resolve(BUILT_FOLDER, script.replace(/ts$/, 'js')), ...args], env)
    : start(['--import', 'tsx', script, ...args], env)

/** For the environment of a process whose clock is to be off, see `shifted-clock.mjs`. */
export const clockOffBy = (ms: number) => ({
  NODE_OPTIONS: `--import ${pathToFileURL(resolve('test/support/shifted-clock.mjs'))}`,
  CLOCK_OFF_BY_MS: String(ms),
})

function start(args: string[], env: Record<string, string>, cwd = process.cwd()): Cli {
  const child = spawn(process.execPath, args, {
    cwd,
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let stdout = ''
  let stderr = ''
  let onOutput: (() => void)[] = []
  const told = () => {
    for (const check of onOutput) check()
  }
  child.stdout.on('data', chunk => {
    stdout += chunk
    told()
  })
  child.stderr.on('data', chunk => {
    stderr += chunk
    told()
  })
  const ended = new Promise<{ code: number | null; stdout: string; stderr: string }>(resolve =>
    child.on('close', code => resolve({ code, stdout, stderr })),
  )
  return {
    child,
    ended,
    said: () => `${stdout}${stderr}`,
    says(text) {
      return new Promise((resolve, reject) => {
        const check = () => {
          if (!`${stdout}${stderr}`.includes(text)) return
          onOutput = onOutput.filter(other => other !== check)
          resolve()
        }
        onOutput.push(check)
        check()
        ended.then(({ code }) =>
          reject(new Error(`it ended with ${code} before it said ${text}:\n${stdout}${stderr}`)),
        )
      })
    },
  }
}
