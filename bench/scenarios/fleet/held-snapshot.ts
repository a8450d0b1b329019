/** Q10: how much longer does a claim take while a snapshot is held open, for a worker with ten tasks? */
import { loadBesideTransaction } from '../../loads/held-transaction.ts'
import { QUARTER_FIGURES } from '../../loads/quarters.ts'
import { type ClaimCalls, readClaimCalls } from '../../measure/claim-time.ts'
import type { Figure } from '../../measure/measurement.ts'
import type { Workload } from '../../peers/workload.ts'
import type { Scenario } from '../scenario.ts'

const PER_SECOND = 2000
const BULK = 50
const QUARTERS = [1, 2, 3, 4] as const
const CLAIMS = QUARTERS.map((n): Figure => ({ name: `claim ${n}`, unit: 'ms', better: 'lower' }))
const RATIO = { name: 'claim, last : first', unit: '×', better: 'lower', isHeadline: true } as const

const SIDES: Readonly<Record<string, { isHeld: boolean; workload: Workload }>> = {
  '10 tasks, held': { isHeld: true, workload: { tasks: 10 } },
  '10 tasks under limits, held': {
    isHeld: true,
    workload: { tasks: 10, limited: { tasks: 10, concurrency: 100 } },
  },
  '10 tasks, not held': { isHeld: false, workload: { tasks: 10 } },
}

export const heldSnapshot: Scenario = {
  id: 'held-snapshot',
  question: 'Q10 a snapshot held for three of four minutes at 2,000 jobs a second, direct mode',
  figures: [RATIO, ...CLAIMS, ...QUARTER_FIGURES],
  needsStatements: true,
  variants: Object.entries(SIDES).map(([name, { workload }]) => ({ name, workload })),
  async measure(setting) {
    const borders: ClaimCalls[] = []
    const measured = await loadBesideTransaction(setting, {
      quarterMs: setting.sizes.quarterMs,
      bulk: BULK,
      perSecond: PER_SECOND,
      isHeld: SIDES[setting.side]?.isHeld ?? true,
      async onBorder() {
        borders.push(await readClaimCalls(setting.database))
      },
    })
    const claimMs = borders.slice(1).map((end, i) => meanMs(borders[i] as ClaimCalls, end))
    for (const [i, ms] of claimMs.entries()) measured.figures[`claim ${i + 1}`] = ms
    measured.figures[RATIO.name] = (claimMs.at(-1) ?? Number.NaN) / (claimMs[0] ?? Number.NaN)
    return measured
  },
}

const meanMs = (from: ClaimCalls, to: ClaimCalls): number => (to.ms - from.ms) / (to.calls - from.calls)
