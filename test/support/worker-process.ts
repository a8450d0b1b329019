/** Workers in processes of their own, to be killed and paused. None outlives its test. */
import { afterEach } from 'vitest'
import type { WorkerOptions } from '../../src/index.ts'
import type { TestDatabase } from './database.ts'
import type { Deployment } from './deployment.ts'
import { spawnScript } from './spawn-cli.ts'

export interface WorkerProcess {
  /** The id of its first life. */
  readonly id: number
  readonly ended: Promise<unknown>
  /** Where its jobs come from. */
  readonly path: 'redis' | 'direct'
  /** SIGKILL. Resolves when it is gone. */
  kill(): Promise<void>
  /** SIGSTOP. */
  pause(): void
  /** SIGCONT. */
  resume(): void
  /** Let its waiting handlers return, now and from now on. */
  release(): void
}

type ProcessOptions = Pick<WorkerOptions, 'lease' | 'name' | 'maxConcurrentTasks' | 'claimBatchSize'> & {
  postgres?: string
  redis?: string
}

/** Call after `useDeployment`: then the processes end before the audit. */
export function useWorkerProcesses(database: TestDatabase, deployment: Deployment) {
  const started: WorkerProcess[] = []
  afterEach(async () => {
    await Promise.all(started.splice(0).map(each => each.kill()))
  })

  return async function startProcess(options: ProcessOptions = {}): Promise<WorkerProcess> {
    await deployment.needRelay()
    const { child, says, ended, said } = spawnScript(
      'test/support/task-worker.ts',
      [JSON.stringify({ postgres: database.url, redis: deployment.redis, ...options })],
      { LONGSHORE_LOG_LEVEL: 'silent' },
    )
    const process: WorkerProcess & { id: number } = {
      id: 0,
      ended,
      get path() {
        return said().lastIndexOf('through redis\n') > said().lastIndexOf('direct\n') ? 'redis' : 'direct'
      },
      async kill() {
        child.kill('SIGKILL')
        await ended
      },
      pause: () => void child.kill('SIGSTOP'),
      resume: () => void child.kill('SIGCONT'),
      release: () => void child.kill('SIGUSR2'),
    }
    started.push(process)
    await says('.\n')
    if (deployment.redis) {
      // Some are made to die at once.
      await says('through redis\n').catch(() => ended)
    }
    process.id = Number(/running (\d+)\./.exec(said())?.[1])
    return process
  }
}
