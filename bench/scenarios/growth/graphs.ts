/**
 * P10: how fast do jobs run that depend on each other, and how long is it from one job of a chain to the next? The last variant is
 * P6, a lone job each 20 ms, which a step of the chain is compared with. Jobs do nothing: all the time is ours.
 */
import type { GroupBuilder, GroupJob } from '../../../src/index.ts'
import { jobData } from '../../jobs/job-data.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { pace } from '../../loads/paced.ts'
import { type Prepare, runGraphs, SUBMITTED } from '../../loads/run-graphs.ts'
import { COST, costOf } from '../../measure/cost.ts'
import type { Sizes } from '../../measure/sizes.ts'
import { quantile } from '../../measure/statistics.ts'
import type { Scenario } from '../scenario.ts'

const STEP = { name: 'step p50', unit: 'ms', better: 'lower', isHeadline: true } as const
const SLOW_STEP = { name: 'step p99', unit: 'ms', better: 'lower' } as const
const CHAIN = 'chain'
const LONE = 'lone jobs (P6)'
const ONE_EACH_20_MS = 50
const GROUPS_IN_FLIGHT = 32
const JOBS_IN_FLIGHT = 1000
const JOBS_A_WORKFLOW = 10

type Add = (after?: readonly GroupJob[]) => GroupJob

const inGroups =
  (groups: number, fill: (add: Add) => unknown): Prepare =>
  (producer, task) => {
    let jobs = 0
    const made: GroupBuilder[] = Array.from({ length: groups }, () => {
      const group = producer.group()
      // `t` is 0, so that the worker tells when each began.
      fill((after = []) => group.add(task, { ...jobData(jobs++), t: 0 }, { after }))
      return group
    })
    return { jobs, calls: groups, inFlight: GROUPS_IN_FLIGHT, call: async i => made[i]?.submit() }
  }

const inWorkflows =
  (workflows: number): Prepare =>
  (producer, task) => {
    const jobs = workflows * JOBS_A_WORKFLOW
    return {
      jobs,
      calls: jobs,
      inFlight: JOBS_IN_FLIGHT,
      call: i => producer.enqueue(task, jobData(i), { workflow: `workflow-${i % workflows}` }),
    }
  }

const SHAPES: Readonly<Record<string, (sizes: Sizes) => Prepare>> = {
  diamonds: sizes =>
    inGroups(sizes.diamonds, add => {
      const top = add()
      add([add([top]), add([top])])
    }),
  'many then one': sizes => inGroups(1, add => add(Array.from({ length: sizes.graphJobs }, () => add()))),
  'one then many': sizes =>
    inGroups(1, add => {
      const first = add()
      for (let n = 0; n < sizes.graphJobs; n++) add([first])
    }),
  'random graph': sizes => inGroups(1, add => addRandomly(add, sizes.graphJobs)),
  'workflows of 10': sizes => inWorkflows(sizes.graphJobs),
  [CHAIN]: sizes =>
    inGroups(1, add => {
      let last = add()
      for (let n = 1; n < sizes.chainJobs; n++) last = add([last])
    }),
}

export const graphs: Scenario = {
  id: 'graphs',
  question: 'P10 10,000 diamonds, 10,000 → 1, a chain of 1,000',
  figures: [{ ...JOBS_PER_SECOND, isHeadline: true }, SUBMITTED, STEP, SLOW_STEP, COST],
  load: 'light',
  variants: [...Object.keys(SHAPES), LONE].map(name => ({ name, peer: 'longshore', workload: {} })),
  async measure(setting) {
    const prepare = SHAPES[setting.side]?.(setting.sizes)
    if (!prepare) {
      const lone = await pace(setting, ONE_EACH_20_MS, setting.sizes.lightLoadMs)
      const { 'start p50': p50 = Number.NaN, 'start p99': p99 = Number.NaN } = lone.figures
      return { ...lone, figures: { [STEP.name]: p50, [SLOW_STEP.name]: p99, [COST.name]: costOf(lone) } }
    }
    const { measured, latenciesUs } = await runGraphs(setting, prepare)
    if (setting.side === CHAIN) {
      const stepsMs = Array.from(latenciesUs.subarray(1), (us, i) => (us - (latenciesUs[i] ?? us)) / 1000)
      measured.figures[STEP.name] = quantile(stepsMs, 0.5)
      measured.figures[SLOW_STEP.name] = quantile(stepsMs, 0.99)
    }
    return measured
  },
}

/** Each job runs after up to five of the 500 before it. */
function addRandomly(add: Add, jobs: number): void {
  let seed = 1
  const draw = (below: number) => {
    seed = (seed * 48271) % 2147483647
    return seed % below
  }
  const made: GroupJob[] = []
  for (let n = 0; n < jobs; n++) {
    const after = new Set<GroupJob>()
    for (let p = 0; p < 5 && n > 0; p++) after.add(made[Math.max(0, n - 1 - draw(500))] as GroupJob)
    made.push(add([...after]))
  }
}
