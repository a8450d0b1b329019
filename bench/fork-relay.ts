/** Owns the parent's side of a relay process. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { RelayMessage, RelayOrder } from './relay-process.ts'

export interface ForkedRelay {
  readonly pid: number
  startProfile(): Promise<void>
  stopProfile(file: string): Promise<void>
  kill(): void
}

const file = fileURLToPath(new URL('relay-process.ts', import.meta.url))

/** Resolves when it runs. */
export async function forkRelay(order: RelayOrder): Promise<ForkedRelay> {
  const child = fork(file, [JSON.stringify(order)])
  const answered = async () => {
    const unneeded = new AbortController()
    const { signal } = unneeded
    try {
      await Promise.race([
        once(child, 'message', { signal }),
        once(child, 'exit', { signal }).then(() => {
          throw new Error(`the relay process ${child.pid} ended too early`)
        }),
      ])
    } finally {
      unneeded.abort()
    }
  }
  const ask = async (message: RelayMessage) => {
    const answer = answered()
    child.send(message)
    await answer
  }
  await answered()
  return {
    pid: child.pid as number,
    startProfile: () => ask({ kind: 'start-profile' }),
    stopProfile: into => ask({ kind: 'stop-profile', file: into }),
    kill: () => child.kill('SIGKILL'),
  }
}
