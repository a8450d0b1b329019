import pino from 'pino'
import { describe, expect, it } from 'vitest'
import { createDrains } from '../../src/worker/drains.ts'

/** A worker whose row says each of these in turn. */
function drainsThatRead(isDrained: boolean, answers: (boolean | undefined)[]) {
  const applied: boolean[] = []
  const drains = createDrains({
    isDrained,
    read: async () => answers.shift(),
    apply: async wanted => {
      applied.push(wanted)
    },
    logger: pino({ level: 'silent' }),
  })
  return { drains, applied }
}

describe('whether a worker is drained', () => {
  it('[W16] is what its row says', async () => {
    const { drains, applied } = drainsThatRead(false, [true, true, false])
    await drains.look()
    expect(drains.isDrained).toBe(true)
    await drains.look()
    await drains.look()
    expect(drains.isDrained).toBe(false)
    expect(applied).toEqual([true, false])
  })

  it('[W16] stays what it was when the row is gone, so that the next life begins so', async () => {
    const { drains, applied } = drainsThatRead(true, [undefined])
    await drains.look()
    expect(drains.isDrained).toBe(true)
    expect(applied).toEqual([])
  })
})
