import { describe, expect, it, onTestFinished } from 'vitest'
import type { RunningJob } from '../../src/job/task.ts'
import { createLogger } from '../../src/runtime/logger.ts'
import type { Run } from '../../src/worker/run-job.ts'
import { createThreadPool } from '../../src/worker/thread-pool.ts'
import { eventually } from '../support/signals.ts'
import { spawnScript } from '../support/spawn-cli.ts'

const module = new URL('../support/threads/jobs.mjs', import.meta.url).href

function openPool(options: { idleMs: number }) {
  const pool = createThreadPool({
    maxThreads: 1,
    memoryMb: undefined,
    abortGraceMs: 0,
    ...options,
    logger: createLogger('test'),
  })
  onTestFinished(() => pool.close())
  /** Which thread runs a job. */
  const threadOf = async () => {
    const run = { signal: new AbortController().signal } as Run
    await new Promise<void>(resolve => pool.enter(run, module, resolve))
    const thread = await pool.run(run, { payload: { work: 'thread' } } as RunningJob<unknown>)
    pool.leave(run)
    return thread
  }
  return { threadOf }
}

describe('an idle thread', () => {
  it('is used again', async () => {
    const { threadOf } = openPool({ idleMs: 60_000 })
    expect(await threadOf()).toBe(await threadOf())
  })

  it('is ended after a while, and another takes its place', async () => {
    const { threadOf } = openPool({ idleMs: 1 })
    const first = await threadOf()
    await eventually('another thread runs jobs', async () => (await threadOf()) !== first)
  })

  it('does not hold its process, which may run TypeScript', async () => {
    const { child, ended, said } = spawnScript('test/support/threads/idle-process.ts', [])
    onTestFinished(() => void child.kill())
    await ended
    expect(said()).toBe('loaded.\n')
  })
})
