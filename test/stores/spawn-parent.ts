/** Runs start-both.ts in a process of its own: any user, any environment, any copy of the project. */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { bareEnv } from './machine.ts'

interface Started {
  readonly pid: number
  readonly dataDir: string
  readonly url: string
  readonly choice: string
}

export interface Parent {
  readonly process: ChildProcess
  readonly ms: number
  readonly postgres: Started
  readonly redis: Started
}

export const projectFolder = fileURLToPath(new URL('../..', import.meta.url))

interface Plan {
  readonly project?: string
  /** Instead of living until it is killed. */
  readonly andThen?: 'leave'
  readonly env?: Record<string, string>
  readonly spawn?: SpawnOptions
}

export async function spawnParent(plan: Plan = {}): Promise<Parent> {
  const project = plan.project ?? projectFolder
  const tsx = new URL('node_modules/tsx/dist/loader.mjs', `file://${projectFolder}`).href
  const child = spawn(
    process.execPath,
    ['--import', tsx, `${project}/test/stores/start-both.ts`, ...(plan.andThen ? [plan.andThen] : [])],
    { cwd: '/', env: plan.env ?? bareEnv(), stdio: ['ignore', 'pipe', 'pipe'], ...plan.spawn },
  )
  onTestFinished(() => void child.kill('SIGKILL'))
  let complaint = ''
  child.stderr?.on('data', chunk => {
    complaint += chunk
  })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', code => reject(new Error(`the parent ended early (exit code ${code}): ${complaint}`)))
    if (!child.stdout) throw new Error('no stdout')
    createInterface(child.stdout).once('line', line => resolve({ process: child, ...JSON.parse(line) }))
  })
}
