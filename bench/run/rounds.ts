/** Owns the order of a run: round by round, scenario by scenario, all peers (or variants) in turn, so that a noisy spell hits each. */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { NOISE_CORES } from '../measure/cpu.ts'
import type { Measurement } from '../measure/measurement.ts'
import { isOurs } from '../peers/known-peers.ts'
import type { Profiled } from '../profile/stretch-profile.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import { type Bench, measure } from './measure-side.ts'
import { peerOf, sidesOf } from './sides.ts'

const ATTEMPTS = 2
/** Longer than a run may take for one figure: a measurement that took so long, with what led up to it, is not made again. */
const LONG_MS = 30_000

export interface Result extends Measurement {
  round: number
  /** From 1 on. */
  attempt: number
  scenario: string
  /** The peer, or the variant of longshore. */
  side: string
  /** Others used the machine meanwhile. */
  isNoisy: boolean
}

/** A side could not do it: said in the results, so that nobody takes it for forgotten. */
export interface Unmeasured {
  round: number
  scenario: string
  side: string
  reason: string
  /** Then the bench has failed, though it goes on. */
  isOurs: boolean
}

export interface RunOptions extends Bench {
  scenarios: readonly Scenario[]
  peers: readonly string[]
  profile: Profiled | undefined
  onStart: (round: number, scenario: Scenario, side: string) => void
  /** The database is still as the measurement left it; `profiles` is a folder, where they were asked for. */
  onResult: (result: Result, scenario: Scenario, profiles: string | undefined) => Promise<void>
  onUnmeasured: (unmeasured: Unmeasured) => void
}

export async function runRounds(
  options: RunOptions,
): Promise<{ results: Result[]; unmeasured: Unmeasured[] }> {
  const results: Result[] = []
  const unmeasured: Unmeasured[] = []
  for (let round = 1; round <= options.sizes.rounds; round++) {
    for (const scenario of options.scenarios) {
      const sides = sidesOf(scenario, options.peers)
      // Each is first in turn, so that none always runs on the warmer machine.
      for (let i = 0; i < sides.length; i++) {
        const side = sides[(i + round - 1) % sides.length] as string
        try {
          for await (const result of measureUntilQuiet(options, round, scenario, side)) results.push(result)
        } catch (cause) {
          const reason = (cause as Error).message
          const one = { round, scenario: scenario.id, side, reason, isOurs: isOurs(peerOf(scenario, side)) }
          unmeasured.push(one)
          options.onUnmeasured(one)
        }
      }
    }
  }
  return { results, unmeasured }
}

/** A noisy measurement is made once more, unless it takes long; both are told. */
async function* measureUntilQuiet(
  options: RunOptions,
  round: number,
  scenario: Scenario,
  side: string,
): AsyncGenerator<Result> {
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    options.onStart(round, scenario, side)
    const startedAt = performance.now()
    const profile = options.profile && {
      who: options.profile,
      folder: mkdtempSync(join(tmpdir(), `longshore-profile-${scenario.id}-`)),
    }
    const measured: Measurement = await measure(options, scenario, side, { profile })
    const isNoisy = (measured.cores.others ?? 0) > NOISE_CORES
    const result: Result = { round, attempt, scenario: scenario.id, side, ...measured, isNoisy }
    await options.onResult(result, scenario, profile?.folder)
    yield result
    if (!isNoisy || options.profile || performance.now() - startedAt > LONG_MS) return
  }
}
