/** Owns the parent's side of a relay process. */
import { fork } from 'node:child_process'
import type { RelayMetrics } from '../src/index.ts'
import type { RelayOrder } from './relay-process.ts'

export interface ForkedRelay {
  readonly pid: number
  metrics(): Promise<RelayMetrics>
  kill(): void
}

/** Resolves when it runs. */
export async function forkRelay(order: RelayOrder): Promise<ForkedRelay> {
  const file = `${order.surroundings.longshore}/bench/relay-process.js`
  const child = fork(file, [JSON.stringify(order)], { execArgv: [] })
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
