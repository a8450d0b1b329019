/**
 * P11: what do 100 idle workers ask of the stores, and how soon do jobs begin on them at 2,000 a second? All workers are in
 * one process. The last variant is P7: one worker at 1,000 a second.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { PACED_FIGURES, pace } from '../../loads/paced.ts'
import type { Setting } from '../../measure/setting.ts'
import { readTraffic } from '../../measure/store-traffic.ts'
import { beginStretch } from '../../measure/timed-stretch.ts'
import type { Scenario } from '../scenario.ts'

const IDLE_FIGURES = [
  { name: 'idle: transactions', unit: '/s', better: 'lower' },
  { name: 'idle: beats', unit: '/s' },
  { name: 'idle: transactions beyond beats', unit: '/s', better: 'lower' },
  { name: 'idle: Redis commands', unit: '/s' },
  { name: 'idle: Postgres', unit: '%' },
  { name: 'idle: workers', unit: '%' },
] as const
const POSTGRES = { name: 'busy: Postgres', unit: '%', better: 'lower', isHeadline: true } as const

/** New connections have filled their caches by then, and told their statistics: they do after ten idle seconds. */
const SETTLE_MS = 12_000

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
    const idle = await measureIdle(setting, workers)
    const busy = await pace(setting, perSecond, setting.sizes.crowdMs, { workers })
    Object.assign(busy.figures, idle, { [POSTGRES.name]: (busy.cores.postgres ?? Number.NaN) * 100 })
    return busy
  },
}

async function measureIdle(setting: Setting, workers: number): Promise<Record<string, number>> {
  const worker = setting.forkWorker(1, 1, { workers })
  await worker.loaded
  worker.begin()
  await worker.ready
  await pause(SETTLE_MS)
  const before = await readTraffic(setting)
  const stretch = await beginStretch(setting, [worker.pid])
  await Promise.race([pause(setting.sizes.idleMs), worker.broken])
  const { cores, seconds } = await stretch.end()
  const after = await readTraffic(setting)
  await worker.finish()
  const perSecond = (from: number, to: number) => (to - from) / seconds
  const transactions = perSecond(before.transactions, after.transactions)
  const beats = perSecond(before.beats, after.beats)
  return {
    'idle: transactions': transactions,
    'idle: beats': beats,
    'idle: transactions beyond beats': transactions - beats,
    'idle: Redis commands': perSecond(before.commands, after.commands),
    'idle: Postgres': (cores.postgres ?? Number.NaN) * 100,
    'idle: workers': (cores.workers ?? Number.NaN) * 100,
  }
}
