/**
 * P11: what do 100 idle workers ask of the stores, and how soon do jobs begin on them at 2,000 a second? All workers are in
 * one process. The last variant is P7: one worker at 1,000 a second.
 */
import { IDLE_FIGURES, measureIdle } from '../../loads/idle.ts'
import { PACED_FIGURES, pace } from '../../loads/paced.ts'
import type { Scenario } from '../scenario.ts'

const POSTGRES = { name: 'busy: Postgres', unit: '%', better: 'lower', isHeadline: true } as const

interface Side {
  readonly peer: string
  readonly workers: number
  readonly perSecond: number
}

const SIDES: Readonly<Record<string, Side>> = {
  '100 workers': { peer: 'longshore', workers: 100, perSecond: 2000 },
  '100 of graphile-worker': { peer: 'graphile-worker', workers: 100, perSecond: 2000 },
  '1 worker, 1,000/s': { peer: 'longshore', workers: 1, perSecond: 1000 },
}

export const idleWorkers: Scenario = {
  id: 'idle-workers',
  question: 'P11 100 workers, idle and at 2,000 single enqueues a second',
  figures: [...IDLE_FIGURES, ...PACED_FIGURES, POSTGRES],
  load: 'stream',
  variants: Object.entries(SIDES).map(([name, { peer }]) => ({ name, peer, workload: {} })),
  async measure(setting) {
    const { workers = 1, perSecond = 1000 } = SIDES[setting.side] ?? {}
    const idle = await measureIdle(setting, workers, setting.sizes.idleMs)
    const busy = await pace(setting, perSecond, setting.sizes.crowdMs, { workers })
    Object.assign(busy.figures, idle, { [POSTGRES.name]: (busy.cores.postgres ?? Number.NaN) * 100 })
    return busy
  },
}
