/**
 * Owns the search for a peer's best settings: a short drain with each candidate, all of them in turn in each round. The clock
 * starts with the worker: counted from the first handler, whatever fetches most ahead of it would look best.
 */

import { RATE_FROM_BEGIN } from '../loads/drain.ts'
import { NOISE_CORES } from '../measure/cpu.ts'
import type { Spread } from '../measure/statistics.ts'
import { knownPeer } from '../peers/known-peers.ts'
import type { Settings } from '../peers/tuning.ts'
import { type Bench, measure } from '../run/measure-side.ts'
import { drain1 } from '../scenarios/beside-peers/drain-one-worker.ts'
import { spreadOfQuiet } from '../summary/quiet-rounds.ts'

/** Told beside the rates. */
export const COUNTED = "from the worker's start"

export interface Swept {
  readonly settings: Settings
  readonly rate: Spread
}

/** The best first. */
export async function sweep(bench: Bench, peer: string, onStart: (what: string) => void): Promise<Swept[]> {
  const tuning = await knownPeer(peer).tuning?.()
  if (!tuning) throw new Error(`${peer} has nothing to tune`)
  const { candidates, sweepJobs } = tuning
  const sizes = { ...bench.sizes, drainJobs: sweepJobs }
  const samples = candidates.map(() => [] as { value: number; isNoisy: boolean }[])
  for (let round = 1; round <= sizes.rounds; round++) {
    for (const [i, settings] of candidates.entries()) {
      onStart(`round ${round} of ${sizes.rounds}: ${describe(settings)} …`)
      const { figures, cores } = await measure({ ...bench, sizes }, drain1, peer, { settings })
      samples[i]?.push({ value: figures[RATE_FROM_BEGIN] ?? 0, isNoisy: (cores.others ?? 0) > NOISE_CORES })
    }
  }
  return candidates
    .map((settings, i) => ({
      settings,
      rate: spreadOfQuiet(samples[i] ?? []) as Spread,
    }))
    .sort((a, b) => b.rate.median - a.rate.median)
}

export const describe = (settings: Settings) =>
  Object.entries(settings)
    .map(([name, value]) => `${name} ${value}`)
    .join(', ')
