/** Owns the measurement of idle workers: what they, the relay and the stores use and are asked while there is no job. */
import { setTimeout as pause } from 'node:timers/promises'
import { PARTS } from '../measure/cpu.ts'
import type { Figure } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { readTraffic } from '../measure/store-traffic.ts'
import { beginStretch } from '../measure/timed-stretch.ts'

export const IDLE_CPU = { name: 'idle: CPU', unit: '%', better: 'lower' } as const
const IDLE_TRANSACTIONS = { name: 'idle: transactions', unit: '/s', better: 'lower' } as const
const IDLE_BEATS = { name: 'idle: beats', unit: '/s' } as const
const IDLE_BEYOND_BEATS = {
  name: 'idle: transactions beyond beats',
  unit: '/s',
  better: 'lower',
} as const
const IDLE_COMMANDS = { name: 'idle: Redis commands', unit: '/s' } as const

/** What `measureIdle` tells. The CPU of all parts, without this process; 100 %: one core. */
export const IDLE_FIGURES: readonly Figure[] = [
  IDLE_CPU,
  IDLE_TRANSACTIONS,
  IDLE_BEATS,
  IDLE_BEYOND_BEATS,
  IDLE_COMMANDS,
  { name: 'idle: Postgres', unit: '%' },
  { name: 'idle: workers', unit: '%' },
  { name: 'idle: relay', unit: '%' },
  { name: 'idle: Redis', unit: '%' },
]

/** New connections have filled their caches by then, and told their statistics: they do after ten idle seconds. */
const SETTLE_MS = 12_000

/** One process with so many workers. */
export async function measureIdle(
  setting: Setting,
  workers: number,
  forMs: number,
): Promise<Record<string, number>> {
  const worker = setting.forkWorker(1, 1, { workers })
  await worker.loaded
  worker.begin()
  await worker.ready
  await pause(SETTLE_MS)
  const before = await readTraffic(setting)
  const stretch = await beginStretch(setting, [worker.pid])
  await Promise.race([pause(forMs), worker.broken])
  const { cores, seconds } = await stretch.end()
  const after = await readTraffic(setting)
  await worker.finish()
  const perSecond = (from: number, to: number) => (to - from) / seconds
  const transactions = perSecond(before.transactions, after.transactions)
  const beats = perSecond(before.beats, after.beats)
  const counted = PARTS.filter(part => part !== 'producer')
  return {
    [IDLE_CPU.name]: counted.reduce((sum, part) => sum + (cores[part] ?? 0), 0) * 100,
    [IDLE_TRANSACTIONS.name]: transactions,
    [IDLE_BEATS.name]: beats,
    [IDLE_BEYOND_BEATS.name]: transactions - beats,
    [IDLE_COMMANDS.name]: perSecond(before.commands, after.commands),
    'idle: Postgres': (cores.postgres ?? Number.NaN) * 100,
    'idle: workers': (cores.workers ?? Number.NaN) * 100,
    ...(cores.relay === undefined ? {} : { 'idle: relay': cores.relay * 100 }),
    ...(cores.redis === undefined ? {} : { 'idle: Redis': cores.redis * 100 }),
  }
}
