/** X10: how long does a ready job wait while a worker that may run it stands idle? In fleets of unlike workers, under load. */
import { fleets } from '../../liveness/fleets.ts'
import { longestIdleWait } from '../../liveness/idle-wait.ts'
import { runFleet } from '../../liveness/run-fleet.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import type { Figure } from '../../measure/measurement.ts'
import { quantile } from '../../measure/statistics.ts'
import type { Scenario } from '../scenario.ts'

const IDLE_WAIT = { name: 'longest wait beside an idle worker', unit: 'ms', isHeadline: true } as const
const SINGLES: readonly Figure[] = [
  { name: 'single jobs, start p50', unit: 'ms', isHeadline: true },
  { name: 'single jobs, start p99', unit: 'ms', isHeadline: true },
]
/** Told with the job and the worker. */
const WORTH_TELLING_MS = 1000

export const liveness: Scenario = {
  id: 'liveness',
  question: 'X10 fleets of unlike workers under load, direct mode',
  figures: [IDLE_WAIT, ...SINGLES, { name: JOBS_PER_SECOND.name, unit: JOBS_PER_SECOND.unit }],
  variants: Object.keys(fleets).map(name => ({ name, workload: {} })),
  async measure(setting) {
    const fleet = fleets[setting.side]
    if (!fleet) throw new Error(`no fleet "${setting.side}"`)
    const { runs, untilUs, ...used } = await runFleet(setting, fleet, setting.sizes.fleetMs)
    const longest = longestIdleWait(fleet, runs, untilUs)
    if (longest && longest.ms > WORTH_TELLING_MS)
      console.error(
        `${setting.side}: job ${longest.run.seq} of load ${longest.run.load} (${fleet.loads[longest.run.load]?.task}) waited ${Math.round(longest.ms)} ms beside worker ${longest.worker}`,
      )
    const jobs = runs.filter(({ endUs }) => endUs <= untilUs).length
    const waitsMs = runs
      .filter(({ load }) => fleet.loads[load] && 'perSecond' in fleet.loads[load].comes)
      .map(({ readyUs, beginUs }) => Math.max(0, beginUs - readyUs) / 1000)
    return {
      jobs,
      ...used,
      figures: {
        [IDLE_WAIT.name]: longest?.ms ?? 0,
        'single jobs, start p50': quantile(waitsMs, 0.5),
        'single jobs, start p99': quantile(waitsMs, 0.99),
        [JOBS_PER_SECOND.name]: jobs / used.seconds,
      },
    }
  },
}
