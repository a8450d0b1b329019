/** Owns whether a worker can do its work, and in which words it says so. */
import { type Health, type Probe, shownLocks, shownStore, shownUpkeep } from '../runtime/health.ts'
import type { StuckHandlers } from './stuck-handlers.ts'
import type { Lives } from './worker-restart.ts'

export interface WorkerHealth extends Health {
  /** `drained` is ready: it does what it was told, and another would be drained as well. `beginning anew`: it lost its lease. */
  readonly state: 'not started' | 'starting' | 'running' | 'drained' | 'beginning anew' | 'stopping'
  /** `up`, or for how long no beat was answered. */
  readonly heartbeat: string
  /** `none stuck`, or `stuck: …`: how many ignored their signal and have not returned, and since when. Each keeps its permit. */
  readonly handlers: string
  /** Where its jobs come from. */
  readonly path: 'redis' | 'direct'
}

export interface StoreProbes {
  readonly postgres: Probe
  /** None where no Redis is given. */
  readonly redis: Probe | undefined
  /** Those that stop this worker. */
  readonly locks: Probe
  /** Duties that fail, of whichever process leads. */
  readonly upkeep: Probe
}

const MEANWHILE = 'jobs come directly from Postgres'

/** Of a worker that runs, drained or not. */
export async function readHealth(
  lives: Lives,
  probes: StoreProbes,
  { leaseMs, stuck, maxTasks }: { leaseMs: number; stuck: StuckHandlers; maxTasks: number },
): Promise<WorkerHealth> {
  const [postgres, redis, locks, failing] = await Promise.all([
    probes.postgres(),
    probes.redis?.(),
    probes.locks(),
    probes.upkeep(),
  ])
  const { isAlive, sinceBeatMs } = lives.vitals()
  const isHeard = sinceBeatMs < leaseMs
  return {
    isReady: isAlive && isHeard && postgres === undefined && locks === undefined && stuck.count < maxTasks,
    state: isAlive ? (lives.isDrained ? 'drained' : 'running') : 'beginning anew',
    postgres: shownStore(postgres),
    redis: probes.redis ? shownStore(redis, MEANWHILE) : 'not used',
    locks: shownLocks(locks),
    upkeep: shownUpkeep(failing, postgres === undefined),
    heartbeat: isHeard ? 'up' : `no beat was answered for ${Math.round(sinceBeatMs)} ms`,
    handlers: shownStuck(stuck, maxTasks),
    path: lives.path,
  }
}

function shownStuck({ count, oldest }: StuckHandlers, maxTasks: number): string {
  if (!oldest) return 'none stuck'
  const since = `the oldest since ${oldest.since.toISOString()} (job ${oldest.job} of task ${oldest.task})`
  const then = count < maxTasks ? 'no job can run alone here' : 'no permit is left, so it claims nothing'
  return `stuck: ${count} of ${maxTasks} ignored their signal and have not returned, ${since}; ${then} until they return or the worker is restarted`
}

/** Of one whose stores are not asked. */
export const notReady = (state: 'not started' | 'starting' | 'stopping'): WorkerHealth => ({
  isReady: false,
  state,
  postgres: 'not asked',
  redis: 'not asked',
  locks: 'not asked',
  upkeep: 'not asked',
  heartbeat: 'none',
  handlers: 'none stuck',
  path: 'direct',
})
