/** Owns whether a relay can do its work, and in which words it says so. */
import { type Health, type Probe, shownLocks, shownStore, shownUpkeep } from '../runtime/health.ts'

export interface RelayHealth extends Health {
  /** A relay that stands by is ready: it leads as soon as the other does not. */
  readonly state: 'not started' | 'starting' | 'leads' | 'stands by' | 'stopping'
}

export interface RelayProbes {
  readonly postgres: Probe
  /** None where no Redis is given. */
  readonly redis: Probe | undefined
  /** Those that stop any worker or producer. */
  readonly locks: Probe
  /** Duties that fail, of whichever process leads. */
  readonly upkeep: Probe
}

const MEANWHILE = 'workers claim directly from Postgres'

/** Of a relay that runs. */
export async function readHealth(isLeading: () => boolean, probes: RelayProbes): Promise<RelayHealth> {
  const [postgres, redis, locks, failing] = await Promise.all([
    probes.postgres(),
    probes.redis?.(),
    probes.locks(),
    probes.upkeep(),
  ])
  return {
    isReady: postgres === undefined && locks === undefined,
    state: isLeading() ? 'leads' : 'stands by',
    postgres: shownStore(postgres),
    redis: probes.redis ? shownStore(redis, MEANWHILE) : 'not used',
    locks: shownLocks(locks),
    upkeep: shownUpkeep(failing, postgres === undefined),
  }
}

/** Of one whose stores are not asked. */
export const notReady = (state: 'not started' | 'starting' | 'stopping'): RelayHealth => ({
  isReady: false,
  state,
  postgres: 'not asked',
  redis: 'not asked',
  locks: 'not asked',
  upkeep: 'not asked',
})
