import { describe, expect, it } from 'vitest'
import { FlowWindow } from '../../src/worker/flow-window.ts'
import { Permits } from '../../src/worker/permits.ts'

describe('permits', () => {
  it('[W3] count what runs and what is asked for', () => {
    const permits = new Permits(10)
    permits.ask(8)
    expect(permits).toMatchObject({ taken: 0, asked: 8 })
    permits.answered(8)
    permits.take(5)
    expect(permits).toMatchObject({ taken: 5, asked: 0, areAllTaken: false })
    permits.take(5)
    expect(permits.areAllTaken).toBe(true)
  })

  it('[W5] tell when the first is free again', () => {
    const permits = new Permits(2, 2)
    expect(permits.free()).toBe(true)
    expect(permits.free()).toBe(false)
    expect(permits.taken).toBe(0)
  })

  it('[W4] count what has ended since the last claim', () => {
    const permits = new Permits(10, 3)
    permits.free()
    permits.free()
    expect(permits.ended).toBe(2)
    permits.ask(1)
    expect(permits.ended).toBe(0)
  })
})

describe('a flow of jobs', () => {
  const endAt = (flow: FlowWindow, times: readonly number[]) => times.map(time => flow.add(time))
  const evenly = (runs: number, from: number, ms: number) =>
    Array.from({ length: runs }, (_, n) => from + (ms * (n + 1)) / runs)

  it('is 50 runs that end within a window', () => {
    const flow = new FlowWindow(0)
    endAt(flow, evenly(49, 0, 100))
    expect(flow.isFlow).toBe(false)
    flow.add(101)
    expect(flow.isFlow).toBe(true)
    endAt(flow, evenly(48, 101, 99))
    flow.add(202)
    expect(flow.isFlow).toBe(false)
  })

  it('is over with the first run after a longer pause', () => {
    const flow = new FlowWindow(0)
    endAt(flow, evenly(60, 0, 101))
    expect(flow.isFlow).toBe(true)
    endAt(flow, evenly(60, 101, 50))
    flow.add(400)
    expect(flow.isFlow).toBe(false)
  })
})
