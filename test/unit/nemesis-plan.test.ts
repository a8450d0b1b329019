import { describe, expect, it } from 'vitest'
import { judgeGrowth } from '../nemesis/growth.ts'
import { planFaults, quietMoments } from '../nemesis/plan.ts'
import type { Sample } from '../nemesis/watch.ts'

const cast = {
  workers: ['worker-0', 'worker-1'],
  relays: ['relay-0', 'relay-1'],
  producers: ['producer-0'],
  spared: ['worker-0', 'relay-0', 'producer-0'],
}
const MINUTE = 60_000

describe('the plan of a nemesis', () => {
  it('follows from its seed alone', () => {
    expect(planFaults(7, MINUTE, cast)).toEqual(planFaults(7, MINUTE, cast))
    expect(planFaults(7, MINUTE, cast)).not.toEqual(planFaults(8, MINUTE, cast))
  })

  it('holds every kind of fault within a minute, on both stores where there are two, whatever the seed', () => {
    for (let seed = 0; seed < 50; seed++) {
      const kinds = planFaults(seed, MINUTE, { ...cast, spared: [] }).map(fault =>
        'store' in fault ? `${fault.kind} ${fault.store}` : fault.kind,
      )
      expect(new Set(kinds).size, `seed ${seed}`).toBe(20)
    }
  })

  it('spares whose memory is watched, and leaves time for the doctor', () => {
    const faults = planFaults(7, 10 * MINUTE, cast)
    const ended = faults.filter(fault => fault.kind === 'kill' || fault.kind === 'stop')
    expect(ended.length).toBeGreaterThan(10)
    for (const fault of ended) expect(cast.spared).not.toContain(fault.slot)
    expect(quietMoments(10 * MINUTE)).toEqual([4 * MINUTE, 8 * MINUTE])
    for (const moment of quietMoments(10 * MINUTE))
      expect(faults.filter(({ at }) => at > moment - 25_000 && at < moment + 15_000)).toEqual([])
  })
})

describe('the watch over a long run', () => {
  const MB = 2 ** 20
  const samples = (bytesAt: (share: number) => number): Sample[] =>
    Array.from({ length: 60 }, (_, n) => ({
      at: n * 5000,
      unfinished: 100,
      ended: n * 1000,
      outboxAgeMs: 50,
      redisBytes: 2 * MB,
      tables: { jobs: { bytes: bytesAt(n / 60), dead: 0 } },
    }))
  const memory = (bytesAt: (share: number) => number) => [
    {
      memory: new Map([
        ['worker-0.0', Array.from({ length: 60 }, (_, n) => ({ at: n * 5000, rssBytes: bytesAt(n / 60) }))],
      ]),
    },
  ]

  it('lets pass what stays as it is, also above where it began', () => {
    const { compared, grown } = judgeGrowth(
      samples(share => (share < 0.1 ? MB : 40 * MB)),
      memory(share => (share < 0.1 ? 60 * MB : 100 * MB)),
    )
    expect(grown).toEqual([])
    expect(compared.map(({ what }) => what)).toContain('memory of worker-0.0')
  })

  it('finds a table and a process that grow with time', () => {
    const { grown } = judgeGrowth(
      samples(share => 100 * MB * share),
      memory(share => 60 * MB + 300 * MB * share),
    )
    expect(grown.map(({ what }) => what)).toEqual(['bytes of table jobs', 'memory of worker-0.0'])
  })

  it('does not judge what was too short', () => {
    expect(judgeGrowth(samples(share => 100 * MB * share).slice(0, 20), [])).toEqual({
      compared: [],
      grown: [],
    })
  })
})
