/** P13: does a queue slow down while a transaction stays open, at a steady rate and at full speed? */
import { loadBesideTransaction } from '../../loads/held-transaction.ts'
import { QUARTER_FIGURES } from '../../loads/quarters.ts'
import type { Scenario } from '../scenario.ts'

const BULK = 500
const STEADY_PER_SECOND = 10_000

interface Side {
  readonly peer: string
  readonly perSecond?: number
  /** Of the time that a steady rate is given. */
  readonly share: number
}

const SIDES: Readonly<Record<string, Side>> = {
  'steady rate': { peer: 'longshore', perSecond: STEADY_PER_SECOND, share: 1 },
  'full speed': { peer: 'longshore', share: 1 / 12 },
  'graphile-worker, full speed': { peer: 'graphile-worker', share: 1 / 12 },
}

export const openTransaction: Scenario = {
  id: 'open-transaction',
  question: 'P13 a transaction held open for three of four minutes',
  figures: QUARTER_FIGURES,
  variants: Object.entries(SIDES).map(([name, { peer }]) => ({ name, peer, workload: {} })),
  measure(setting) {
    const side = SIDES[setting.side]
    if (!side) throw new Error(`no side "${setting.side}"`)
    const { share, perSecond } = side
    return loadBesideTransaction(setting, {
      quarterMs: setting.sizes.quarterMs * share,
      bulk: BULK,
      ...(perSecond === undefined ? {} : { perSecond }),
    })
  },
}
