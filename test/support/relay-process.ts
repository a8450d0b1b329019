/** Relays in processes of their own, to be killed and paused. None outlives its test. */
import { afterEach } from 'vitest'
import type { RelayOptions } from '../../src/index.ts'
import type { TestDatabase } from './database.ts'
import type { Deployment } from './deployment.ts'
import type { NextVersion } from './next-version.ts'
import { spawnScript } from './spawn-cli.ts'

export interface RelayProcess {
  /** Resolves when it leads for the first time. */
  leads(): Promise<void>
  /** Resolves when it has led and leads no more. */
  leadsNoMore(): Promise<void>
  /** SIGKILL. Resolves when it is gone. */
  kill(): Promise<void>
  /** SIGSTOP. */
  pause(): void
  /** SIGCONT. */
  resume(): void
}

/** Call after `useDeployment`: then the processes end before the audit. */
export function useRelayProcesses(database: TestDatabase, deployment: Deployment) {
  const started: RelayProcess[] = []
  afterEach(async () => {
    await Promise.all(started.splice(0).map(each => each.kill()))
  })

  return async function startRelay({
    build,
    ...options
  }: Pick<RelayOptions, 'redis'> & {
    postgres?: string
    /** Of another version: see `next-version.ts`. */
    build?: NextVersion
  } = {}): Promise<RelayProcess> {
    const { child, says, ended } = (build?.spawnScript ?? spawnScript)(
      'test/support/relay-main.ts',
      [JSON.stringify({ postgres: database.urlOf('relay'), redis: deployment.redisOf('relay'), ...options })],
      { LONGSHORE_LOG_LEVEL: 'silent' },
    )
    const relay = {
      leads: () => says('leads.\n'),
      leadsNoMore: () => says('leads no more.\n'),
      async kill() {
        child.kill('SIGKILL')
        await ended
      },
      pause: () => void child.kill('SIGSTOP'),
      resume: () => void child.kill('SIGCONT'),
    }
    started.push(relay)
    await says('running.\n')
    return relay
  }
}
