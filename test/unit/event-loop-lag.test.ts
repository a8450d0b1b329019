import { afterEach, beforeEach, expect, it } from 'vitest'
import { createLagGauge, type LagGauge } from '../../src/runtime/event-loop-lag.ts'

/** It looks every 20 ms, and needs two looks to know a delay. */
const untilItLooks = () => new Promise(resolve => setTimeout(resolve, 50))

function block(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}

let gauge: LagGauge
beforeEach(async () => {
  gauge = createLagGauge()
  await untilItLooks()
})
afterEach(() => gauge.stop())

it('tells of a delay that begins right after it was read', async () => {
  gauge.read()
  block(300)
  await untilItLooks()
  expect(gauge.read()).toBeGreaterThan(200)
})

it('tells of a delay in whose last moment it was read', async () => {
  block(300)
  gauge.read()
  await untilItLooks()
  expect(gauge.read()).toBeGreaterThan(200)
})

it('remembers as a peak what it has told before', async () => {
  block(300)
  await untilItLooks()
  for (let reads = 0; reads < 3; reads++) gauge.read()
  expect(gauge.peak()).toBeGreaterThan(200)
})
