/** Owns the parent's side of a relay process. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import type { RelayMetrics } from '../../src/index.ts'
import type { RelayMessage, RelayOrder } from './relay-process.ts'

export interface ForkedRelay {
  readonly pid: number
  startProfile(): Promise<void>
  stopProfile(file: string): Promise<void>
  metrics(): Promise<RelayMetrics>
  kill(): void
}

/** Resolves when it runs. */
export async function forkRelay(order: RelayOrder): Promise<ForkedRelay> {
  const file = `${order.surroundings.longshore}/bench/processes/relay-process.js`
  const child = fork(file, [JSON.stringify(order)], { execArgv: [] })
  const answered = async (): Promise<unknown> => {
    const unneeded = new AbortController()
    const { signal } = unneeded
    try {
      const [answer] = await Promise.race([
        once(child, 'message', { signal }),
        once(child, 'exit', { signal }).then(() => {
          throw new Error(`the relay process ${child.pid} ended too early`)
        }),
      ])
      return answer
    } finally {
      unneeded.abort()
    }
  }
  // One question at a time: answers carry no name.
  let last: Promise<unknown> = answered()
  const ask = (message: RelayMessage): Promise<unknown> => {
    const asked = last.then(() => {
      const answer = answered()
      child.send(message)
      return answer
    })
    last = asked.catch(() => undefined)
    return asked
  }
  await last
  return {
    pid: child.pid as number,
    async startProfile() {
      await ask({ kind: 'start-profile' })
    },
    async stopProfile(into) {
      await ask({ kind: 'stop-profile', file: into })
    },
    metrics: async () => (await ask({ kind: 'metrics' })) as RelayMetrics,
    kill: () => child.kill('SIGKILL'),
  }
}
