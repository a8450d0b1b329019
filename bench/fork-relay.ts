/** Owns the parent's side of a relay process. */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { RelayMetrics } from '../src/index.ts'
import type { RelayOrder } from './relay-process.ts'

export interface ForkedRelay {
  readonly pid: number
  metrics(): Promise<RelayMetrics>
  kill(): void
}

const file = fileURLToPath(new URL('relay-process.ts', import.meta.url))

/** Resolves when it runs. */
export async function forkRelay(order: RelayOrder): Promise<ForkedRelay> {
  const child = fork(file, [JSON.stringify(order)])
  await new Promise<void>((resolve, reject) => {
    child.once('message', () => resolve())
    child.once('exit', () => reject(new Error(`the relay process ${child.pid} ended too early`)))
  })
  return {
    pid: child.pid as number,
    metrics: () =>
      new Promise(resolve => {
        child.once('message', told => resolve(told as unknown as RelayMetrics))
        child.send('metrics')
      }),
    kill: () => child.kill('SIGKILL'),
  }
}
