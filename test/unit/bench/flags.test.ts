/** What the command line of the bench asks for. */
import { describe, expect, it } from 'vitest'
import { type Flags, readFlags } from '../../../bench/command/flags.ts'

const read = (...args: string[]) => readFlags(args) as Flags

describe('flags of the bench', () => {
  it('mean every peer and three rounds when there are none, and results are written', () => {
    const { name, peers, sizes, isSaved, leftOut } = read()
    expect({ name, rounds: sizes.rounds, isSaved, leftOut }).toEqual({
      name: 'all',
      rounds: 3,
      isSaved: true,
      leftOut: [],
    })
    expect(peers).toContain('bullmq-aof-always')
  })

  it('name a run of less than a whole set apart from the whole set', () => {
    const names = [
      read('--quick'),
      read('--only', 'drain1,drain2'),
      read('--peers', 'longshore,floor'),
      read('--rounds', '1'),
      read('--set', 'itself'),
    ].map(({ name }) => name)
    expect(names).toEqual([
      'quick-all',
      'only-drain1+drain2',
      'only-all-of-longshore+floor',
      'only-all-rounds-1',
      'itself',
    ])
  })

  it('mean fewer rounds for sets of variants, also for one scenario of such a set', () => {
    const rounds = [
      read('--set', 'itself'),
      read('--set', 'growth'),
      read('--only', 'backlog'),
      read('--set', 'growth', '--rounds', '2'),
    ].map(({ sizes }) => sizes.rounds)
    expect(rounds).toEqual([2, 1, 1, 2])
    expect(read('--set', 'growth').name).toBe('growth')
  })

  it('say what --quick leaves out, but not what was asked for by name', () => {
    expect(read('--quick').leftOut).toHaveLength(2)
    expect(read('--quick', '--only', 'stream', '--peers', 'pg-boss').leftOut).toEqual([])
    expect(read('--quick', '--only', 'backlog').leftOut).toEqual([])
    expect(read('--quick', '--only', 'stream').scenarios.map(({ id }) => id)).toEqual(['stream'])
  })

  it('do not write profiles to the results, nor anything with --no-save', () => {
    expect(read('--profile', 'relay')).toMatchObject({ isSaved: false, peers: ['longshore'] })
    expect(read('--no-save').isSaved).toBe(false)
  })

  it('mean drains in direct mode for another checkout, unless others are named', () => {
    const { beside, peers, scenarios, name } = read('--beside', '../before')
    expect(beside).toEqual({ checkout: '../before', pairs: 10 })
    expect(scenarios.map(({ id }) => id)).toEqual(['drain1', 'drain2'])
    expect(peers).toEqual(['longshore-direct'])
    expect(name).toBe('only-beside-drain1+drain2-of-longshore-direct')
    expect(read('--beside', '../before', '--only', 'whole', '--pairs', '3').beside?.pairs).toBe(3)
    expect(() => read('--beside', '../before', '--peers', 'pg-boss')).toThrow(/builds of longshore/)
    expect(() => read('--beside', '../before', '--pairs', '0')).toThrow(/--pairs is a whole number/)
  })

  it('are refused when they name what is not there', () => {
    expect(() => read('--peers', 'nobody')).toThrow('no peer "nobody"')
    expect(() => read('--only', 'nothing')).toThrow('no scenario "nothing"')
    expect(() => read('--sweep', 'nobody')).toThrow('no peer "nobody"')
  })
})
