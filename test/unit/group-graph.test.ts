import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type EdgePolicy,
  type GraphJob,
  inOrder,
  MOST_EDGES,
  MOST_JOBS,
  MOST_PARENTS,
} from '../../src/job/group-graph.ts'

const job = (id: string, parents: string[] = [], workflow?: string): GraphJob => ({
  id,
  label: id.toUpperCase(),
  parents: new Map(parents.map(parent => [parent, 'fail' as EdgePolicy])),
  ...(workflow === undefined ? {} : { workflow }),
})

const ordered = (jobs: GraphJob[]) => inOrder(jobs).map(({ id }) => id)
const refused = (message: string) => expect.objectContaining({ code: 'GROUP_INVALID', message })

/** Any graph without a circle, its jobs in any order. */
const graphs = fc
  .array(fc.record({ parents: fc.array(fc.nat(), { maxLength: 5 }), place: fc.integer() }), { maxLength: 60 })
  .map(rows =>
    rows
      .map((row, n) => ({
        place: row.place,
        job: job(String(n), n === 0 ? [] : row.parents.map(parent => String(parent % n))),
      }))
      .sort((a, b) => a.place - b.place)
      .map(row => row.job),
  )

describe('the order of a group', () => {
  it('[S2] stays as given where nothing depends on what comes later', () => {
    expect(ordered([job('a'), job('b', ['a']), job('c'), job('d', ['b', 'c'])])).toEqual(['a', 'b', 'c', 'd'])
    expect(ordered([])).toEqual([])
  })

  it('[S2] puts parents first', () => {
    expect(ordered([job('d', ['b', 'c']), job('c', ['a']), job('b', ['a']), job('a')])).toEqual([
      'a',
      'b',
      'c',
      'd',
    ])
  })

  it('[S2] every job once, behind all that it runs after, whatever the graph', () => {
    fc.assert(
      fc.property(graphs, jobs => {
        const places = new Map(ordered(jobs).map((id, place) => [id, place]))
        expect(places.size).toBe(jobs.length)
        for (const { id, parents } of jobs)
          for (const parent of parents.keys())
            expect(places.get(parent) as number).toBeLessThan(places.get(id) as number)
      }),
    )
  })

  it('[S2] finds a circle in any graph, and names a path that is one', () => {
    fc.assert(
      fc.property(graphs, fc.nat(), fc.integer({ min: 1, max: 15 }), (jobs, start, length) => {
        const from = jobs.length === 0 ? [] : [String(start % jobs.length)]
        const names = Array.from({ length }, (_, n) => `circle${n}`)
        const circle = names.map((name, n) => job(name, [names[(n + 1) % length] as string, ...from]))
        expect(() => inOrder([...jobs, ...circle])).toThrow(
          /wait for each other for ever: CIRCLE\d+ runs after/,
        )
      }),
    )
  })

  it('[W2] keeps the order of a workflow, and puts what it waits for before it', () => {
    expect(ordered([job('a', ['x'], 'w'), job('b', [], 'w'), job('c', [], 'v'), job('x')])).toEqual([
      'x',
      'a',
      'b',
      'c',
    ])
  })

  it('a chain may be longer than the stack', () => {
    const jobs = Array.from({ length: MOST_JOBS }, (_, n) =>
      job(String(n), n + 1 < MOST_JOBS ? [String(n + 1)] : []),
    )
    expect(ordered(jobs)[0]).toBe(String(MOST_JOBS - 1))
  })
})

describe('a group is refused', () => {
  it.each([
    [[job('a', ['a'])], 'these jobs would wait for each other for ever: A runs after A'],
    [
      [job('x'), job('a', ['x', 'c']), job('b', ['a']), job('c', ['b'])],
      'these jobs would wait for each other for ever: A runs after C runs after B runs after A',
    ],
    [
      [job('a', ['b'], 'w'), job('b', [], 'w')],
      'these jobs would wait for each other for ever: A runs after B runs after A; jobs of one workflow run in the order in which they were added, so add them in that order',
    ],
    [[job('a', ['z'])], 'A is to run after job z, which is not in this group: add it first, or leave it out'],
  ])('[S2] %#', (jobs, message) => {
    expect(() => inOrder(jobs)).toThrow(refused(message))
  })

  it('[S2] a long circle is named in short', () => {
    const jobs = Array.from({ length: 50 }, (_, n) => job(`j${n}`, [`j${(n + 1) % 50}`]))
    expect(() => inOrder(jobs)).toThrow(/J8 runs after … \(41 more\) runs after J0$/)
  })

  it('parents outside may be allowed', () => {
    expect(inOrder([job('a', ['outside'])], id => id === 'outside')).toHaveLength(1)
    expect(() => inOrder([job('a', ['elsewhere'])], id => id === 'outside')).toThrow('elsewhere')
  })

  it('when it has too many jobs, edges, or parents of one job', () => {
    const many = (count: number) => Array.from({ length: count }, (_, n) => `p${n}`)
    const anybody = () => true
    expect(() => inOrder(many(MOST_JOBS + 1).map(id => job(id)))).toThrow(
      refused(
        '100001 jobs are too many for one submission, at most 100000 are possible: submit it in parts with addToGroup',
      ),
    )
    expect(inOrder([job('a', many(MOST_PARENTS))], anybody)).toHaveLength(1)
    expect(() => inOrder([job('a', many(MOST_PARENTS + 1))], anybody)).toThrow(
      refused(
        'A is to run after 10001 jobs, at most 10000 are possible: put jobs in between that gather some of them',
      ),
    )
    const parents = job('', many(MOST_PARENTS)).parents
    const crowd = Array.from({ length: MOST_EDGES / MOST_PARENTS + 1 }, (_, n) => ({
      ...job(`c${n}`),
      parents,
    }))
    expect(() => inOrder(crowd, anybody)).toThrow(
      refused(
        '510000 dependencies are too many for one submission, at most 500000 are possible: put jobs in between that gather some of them',
      ),
    )
  })
})
