/** Generated fleets of unlike workers. A failure tells the seed: LONGSHORE_SEED repeats the fleets, LONGSHORE_PATH one of them. */
import { randomInt } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, inject } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { fleetArbitrary } from './fleet-arbitrary.ts'
import { type Bound, itHolds } from './known-failures.ts'
import type { FleetPlan } from './plan.ts'
import { runFleet } from './run-fleet.ts'

const { LONGSHORE_SEED, LONGSHORE_PATH, LONGSHORE_RUNS, LONGSHORE_ALL } = process.env
/** The gate runs the fleets that have found the last fault; with `npm run test:all` they are new each time. */
const FOUND = 726_236_663
const seed = Number(LONGSHORE_SEED ?? (LONGSHORE_ALL ? randomInt(2 ** 31) : FOUND))
/** Of fleets of one kind. Longer with `npm run test:all`. */
const ENOUGH_MS = LONGSHORE_ALL ? 60_000 : 7000
/** Most of the time of a fleet goes by waiting: some run side by side, in one database. */
const AT_ONCE = 3

const database = useDatabase()
const stage = { database, deployment: useDeployment(database) }

/** Throws with the seed, the fleet and its history. */
async function check(name: string, plan: fc.Arbitrary<FleetPlan>, bound: Bound): Promise<void> {
  const where = `live ${inject('dispatch')}, ${name}`
  process.stdout.write(`${where}: LONGSHORE_SEED=${seed}\n`)
  const began = performance.now()
  let fleets = 0
  let runs = 0
  let longestMs = 0
  const plans = fc.array(plan, { minLength: AT_ONCE, maxLength: AT_ONCE })
  const property = fc.asyncProperty(plans, async plans => {
    // Not by fast-check's own limit, which leaves the last fleets running.
    if (!LONGSHORE_PATH && !LONGSHORE_RUNS && performance.now() - began > ENOUGH_MS) return
    const reports = await Promise.allSettled(plans.map(plan => runFleet(stage, plan, bound)))
    for (const report of reports) {
      if (report.status === 'rejected') throw report.reason
      fleets++
      runs += report.value.runs
      longestMs = Math.max(longestMs, report.value.longestMs)
    }
  })
  await fc.assert(property, {
    seed,
    // A stall is no more likely to come again in a smaller fleet, and each try takes as long.
    endOnFailure: true,
    ...(LONGSHORE_PATH ? { path: LONGSHORE_PATH, numRuns: 1 } : { numRuns: Number(LONGSHORE_RUNS ?? 1000) }),
  })
  const seconds = ((performance.now() - began) / 1000).toFixed(1)
  process.stdout.write(
    `${where}: ${fleets} fleets with ${runs} runs in ${seconds} s; the longest wait without an explanation was ${Math.round(longestMs)} ms\n`,
  )
  expect(runs).toBeGreaterThan(0)
}

describe('no job waits beside an idle worker that may run it without an explanation', () => {
  for (const [name, isLimited] of [
    ['fleets without limits', false],
    ['fleets with limits', true],
  ] satisfies [string, boolean][])
    itHolds(
      name,
      `[X10] [S11] [D14] generated ${name}`,
      bound => check(name, fleetArbitrary(isLimited), bound),
      3_600_000,
    )
})
