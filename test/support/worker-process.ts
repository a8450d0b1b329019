/** Workers in processes of their own, to be killed and paused. None outlives its test. */
import { afterEach } from 'vitest'
import type { WorkerOptions } from '../../src/index.ts'
import type { TestDatabase } from './database.ts'
import type { Deployment } from './deployment.ts'
import type { NextVersion } from './next-version.ts'
import { clockOffBy, spawnScript } from './spawn-cli.ts'

export interface WorkerProcess {
  /** The id of its first life. */
  readonly id: number
  readonly ended: Promise<unknown>
  /** Where its jobs come from. */
  readonly path: 'redis' | 'direct'
  /** SIGKILL. Resolves when it is gone. */
  kill(): Promise<void>
  /** SIGTERM. Resolves when it has begun to stop. */
  stop(): Promise<void>
  /** SIGSTOP. */
  pause(): void
  /** SIGCONT. */
  resume(): void
  /** Let its waiting handlers return, now and from now on. */
  release(): void
  /** Resolves when its output contains this. */
  says(text: string): Promise<void>
  /** All of its output so far. */
  said(): string
}

type ProcessOptions = Pick<WorkerOptions, 'lease' | 'name' | 'maxConcurrentTasks' | 'claimBatchSize'> & {
  postgres?: string
  redis?: string
  /** How far its clock is off. */
  clockOffByMs?: number
  /** Of another version: see `next-version.ts`. */
  build?: NextVersion
  /** Redis holds nothing for it yet. */
  goesDirect?: boolean
  /** Of its output. Default: it logs nothing. */
  logLevel?: 'warn'
}

/** Call after `useDeployment`: then the processes end before the audit. */
export function useWorkerProcesses(database: TestDatabase, deployment: Deployment) {
  const started: WorkerProcess[] = []
  afterEach(async () => {
    await Promise.all(started.splice(0).map(each => each.kill()))
  })

  return async function startProcess({
    clockOffByMs,
    build,
    goesDirect = false,
    logLevel,
    ...options
  }: ProcessOptions = {}): Promise<WorkerProcess> {
    await deployment.needRelay()
    const { child, says, ended, said } = (build?.spawnScript ?? spawnScript)(
      'test/support/task-worker.ts',
      [
        JSON.stringify({
          postgres: database.urlOf('worker'),
          redis: deployment.redisOf('worker'),
          ...options,
        }),
      ],
      {
        LONGSHORE_LOG_LEVEL: logLevel ?? 'silent',
        ...(clockOffByMs === undefined ? {} : clockOffBy(clockOffByMs)),
      },
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
      async stop() {
        child.kill('SIGTERM')
        await says('stopping.\n')
      },
      pause: () => void child.kill('SIGSTOP'),
      resume: () => void child.kill('SIGCONT'),
      release: () => void child.kill('SIGUSR2'),
      says,
      said,
    }
    started.push(process)
    await says('.\n')
    if (deployment.redis && !goesDirect) {
      // Some are made to die at once.
      await says('through redis\n').catch(() => ended)
    }
    process.id = Number(/running (\d+)\./.exec(said())?.[1])
    return process
  }
}
