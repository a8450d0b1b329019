import { describe, expect, it } from 'vitest'
import { naturalBatch } from '../../src/runtime/natural-batch.ts'
import { type Gate, gate } from '../support/signals.ts'

describe('batching by nature', () => {
  function recorded(inFlight: number, maxItems: number) {
    const sent: number[][] = []
    const gates: Gate[] = []
    const batch = naturalBatch<number>({
      inFlight,
      maxItems,
      send: items => {
        sent.push(items)
        const hold = gate()
        gates.push(hold)
        return hold.opened
      },
    })
    return { sent, gates, batch }
  }
  const turn = () => new Promise(resolve => setImmediate(resolve))

  it('sends a lone item at once, and what comes meanwhile together', async () => {
    const { sent, gates, batch } = recorded(1, 10)
    batch.add(1)
    await turn()
    expect(sent).toEqual([[1]])
    for (const n of [2, 3, 4]) {
      batch.add(n)
      await turn()
    }
    expect(sent).toEqual([[1]])
    gates[0]?.open()
    await turn()
    expect(sent).toEqual([[1], [2, 3, 4]])
  })

  it('keeps to its bounds, and tells when all is answered', async () => {
    const { sent, gates, batch } = recorded(2, 3)
    let isIdle = false
    for (let n = 0; n < 8; n++) batch.add(n)
    const idle = batch.idle().then(() => {
      isIdle = true
    })
    await turn()
    expect(sent).toEqual([
      [0, 1, 2],
      [3, 4, 5],
    ])
    gates[1]?.open()
    await turn()
    expect(sent[2]).toEqual([6, 7])
    gates[0]?.open()
    await turn()
    expect(isIdle).toBe(false)
    gates[2]?.open()
    await idle
  })
})

describe('batching by key', () => {
  it('has items of one key in one call at a time, in order, and lets others go on', async () => {
    const sent: string[][] = []
    const gates: Gate[] = []
    const batch = naturalBatch<string>({
      inFlight: 2,
      maxItems: 3,
      keyOf: item => item[0],
      send: items => {
        sent.push(items)
        const hold = gate()
        gates.push(hold)
        return hold.opened
      },
    })
    const turn = () => new Promise(resolve => setImmediate(resolve))
    for (const item of ['a1', 'a2', 'b1', 'a3', 'c1']) batch.add(item)
    await turn()
    // As many as fit; of the rest only what nobody is sending.
    expect(sent).toEqual([['a1', 'a2', 'b1'], ['c1']])
    gates[1]?.open()
    for (const item of ['b2', 'd1', 'c2']) batch.add(item)
    await turn()
    expect(sent[2]).toEqual(['d1', 'c2'])
    let isIdle = false
    const idle = batch.idle().then(() => {
      isIdle = true
    })
    gates[2]?.open()
    await turn()
    expect([sent.length, isIdle]).toEqual([3, false])
    gates[0]?.open()
    await turn()
    expect(sent[3]).toEqual(['a3', 'b2'])
    gates[3]?.open()
    await idle
  })
})
