/** Every figure in README and the page on performance comes from a committed record. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { sidesOf } from '../../../bench/report/doc-tables.ts'
import { fill, PAGES_WITH_FIGURES } from '../../../bench/report/fill-docs.ts'
import { tenTasks } from '../../../bench/scenarios/fleet/ten-tasks.ts'
import { summarize } from '../../../bench/summary/summary.ts'
import { result } from './results.ts'

describe.each(PAGES_WITH_FIGURES)('the figures in %s', name => {
  const page = readFileSync(fileURLToPath(new URL(`../../../${name}`, import.meta.url)), 'utf8')

  it('are those of bench/results (npm run bench -- --docs writes them)', () => {
    expect(page).toContain('<!-- figures: ')
    expect(fill(page)).toBe(page)
  })
})

it('gives each variant of a question a line of medians', () => {
  const of = (side: string, round: number, cost: number) =>
    result(side, round, 1000, { scenario: 'ten-tasks', figures: { cost } })
  const results = [of('1 task', 1, 20), of('1 task', 2, 22), of('10 tasks, jobs of all', 1, 25)]
  expect(sidesOf(summarize([tenTasks], [], { results, unmeasured: [] }))).toEqual({
    head: ['', 'cost, µs'],
    rows: [
      ['10 tasks, jobs of all', '25.0'],
      ['1 task', '21.0'],
    ],
  })
})

it('says which tables there are when a page asks for another', () => {
  expect(() => fill('<!-- figures: nothing -->\n<!-- end -->')).toThrow(/no figures "nothing"; there are /)
})
