/** L9: how long does it take to take slots and to free them, undisturbed? */

import { registerTask } from '../../jobs/stored-jobs.ts'
import { defineTimer, timeCalls } from '../../loads/timed-claims.ts'
import { quantile } from '../../measure/statistics.ts'
import { beginStretch } from '../../measure/timed-stretch.ts'
import type { Scenario } from '../scenario.ts'

/** The limit, and the slots of one operation: half of the limit, as a claim takes them. */
const LIMITS: Readonly<Record<string, { limit: number; slots: number }>> = {
  'limit 10, 5 at once': { limit: 10, slots: 5 },
  'limit 500, 250 at once': { limit: 500, slots: 250 },
}

export const slotOperations: Scenario = {
  id: 'slot-operations',
  question: 'L9 one slot operation',
  figures: ['take p50', 'take p95', 'free p50', 'free p95'].map(name => ({ name, unit: 'ms' })),
  variants: Object.keys(LIMITS).map(name => ({ name, workload: {} })),
  async measure(setting) {
    const { database, sizes } = setting
    const { limit = 1, slots = 1 } = LIMITS[setting.side] ?? {}
    await registerTask(database, 'noop', { concurrency: limit })
    await database.query(`select longshore.take_slots(id, ${slots}) from longshore.limits`)
    await defineTimer(
      database,
      'timed_take',
      'p_limit int',
      `from unnest(longshore.take_slots(p_limit, ${slots}))`,
    )
    await defineTimer(
      database,
      'timed_free',
      'p_lanes int[], p_slots smallint[], p_key_slots smallint[]',
      'from unnest(longshore.free_slots(p_lanes, p_slots, p_key_slots))',
    )
    const [held] = await database.query(`
      select (select min(id) from longshore.limits) as "limitId",
        format('%L, %L, %L', array_agg((select min(id) from longshore.lanes)), array_agg(g.number),
          array_agg(null::smallint)) as arguments
      from longshore.slot_groups g, generate_series(1, g.used)`)
    await database.settle()
    const stretch = await beginStretch(setting, [])
    const take = await timeCalls(database, `timed_take(${held?.['limitId']})`, sizes.claims)
    const free = await timeCalls(database, `timed_free(${held?.['arguments']})`, sizes.claims)
    const { cores, seconds, writes } = await stretch.end()
    if (take.some(({ rows }) => rows !== slots)) throw new Error('not all slots were to be had')
    const [takeMs, freeMs] = [take, free].map(times => times.map(time => time.ms)) as [number[], number[]]
    return {
      jobs: take.length + free.length,
      figures: {
        'take p50': quantile(takeMs, 0.5),
        'take p95': quantile(takeMs, 0.95),
        'free p50': quantile(freeMs, 0.5),
        'free p95': quantile(freeMs, 0.95),
      },
      cores,
      seconds,
      writes,
    }
  },
}
