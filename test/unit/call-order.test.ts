import { describe, expect, it } from 'vitest'
import { createCallOrder } from '../../src/runtime/call-order.ts'
import { gate } from '../support/signals.ts'

describe('the order of calls', () => {
  it('is kept for each key, whatever their preparation takes, and whatever becomes of it', async () => {
    const inCallOrder = createCallOrder()
    const gates = { a1: gate<string>(), a2: gate<string>(), b1: gate<string>() }
    const went: string[] = []
    const goOn = (name: string) => {
      went.push(name)
      return `done ${name}`
    }
    const a1 = inCallOrder('a', gates.a1.opened, goOn)
    const failed = inCallOrder('a', Promise.reject(new Error('not prepared')), goOn)
    const a2 = inCallOrder('a', gates.a2.opened, goOn)
    const thrown = inCallOrder('a', Promise.resolve(), () => {
      throw new Error('did not go on')
    })
    const a3 = inCallOrder('a', Promise.resolve('a3'), goOn)
    const b1 = inCallOrder('b', gates.b1.opened, goOn)
    gates.b1.open('b1')
    expect(await b1).toBe('done b1')
    gates.a2.open('a2')
    await Promise.resolve()
    expect(went).toEqual(['b1'])
    gates.a1.open('a1')
    await expect(failed).rejects.toThrow('not prepared')
    await expect(thrown).rejects.toThrow('did not go on')
    expect(await Promise.all([a1, a2, a3])).toEqual(['done a1', 'done a2', 'done a3'])
    expect(went).toEqual(['b1', 'a1', 'a2', 'a3'])
    expect(await inCallOrder('a', Promise.resolve('a4'), goOn)).toBe('done a4')
  })
})
