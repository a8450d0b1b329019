/** Owns whether a relay can do its work, and in which words it says so. */
import { type Health, type Probe, shownStore } from '../runtime/health.ts'

export interface RelayHealth extends Health {
  /** A relay that stands by is ready: it leads as soon as the other does not. */
  readonly state: 'not started' | 'starting' | 'leads' | 'stands by' | 'stopping'
}

const MEANWHILE = 'workers claim straight from Postgres'

/** Of a relay that runs. */
export async function readHealth(
  isLeading: () => boolean,
  probes: { postgres: Probe; redis: Probe | undefined },
): Promise<RelayHealth> {
  const [postgres, redis] = await Promise.all([probes.postgres(), probes.redis?.()])
  return {
    isReady: postgres === undefined,
    state: isLeading() ? 'leads' : 'stands by',
    postgres: shownStore(postgres),
    redis: probes.redis ? shownStore(redis, MEANWHILE) : 'not used',
  }
}

/** Of one whose stores are not asked. */
export const notReady = (state: 'not started' | 'starting' | 'stopping'): RelayHealth => ({
  isReady: false,
  state,
  postgres: 'not asked',
  redis: 'not asked',
})
