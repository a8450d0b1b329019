/** Owns how much of the time slots stood empty, as the history tells: no run from `started_at` to `finished_at`. */
import type { Figure } from './measurement.ts'
import type { Setting } from './setting.ts'

export const SLOTS_IDLE = { name: 'slots idle', unit: '%' } as const satisfies Figure

/** Of all slot-seconds between the first start and the last end, in percent. Throws when a slot was not given back. */
export async function idleSlots(setting: Setting, slots: number): Promise<number> {
  const [held] = await setting.database.query('select sum(used)::int as n from longshore.slot_groups')
  if (held?.['n'] !== 0) throw new Error(`${held?.['n']} slots are still held`)
  const [row] = await setting.database.query(`
    select 100 * (1 - sum(extract(epoch from f.finished_at - f.started_at))
      / (${slots} * extract(epoch from max(f.finished_at) - min(f.started_at))))::float8 as idle
    from longshore.finished_jobs f`)
  return row?.['idle'] as number
}
