/** Every figure in README and the page on performance comes from a committed record. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { fill, PAGES_WITH_FIGURES } from '../../../bench/report/fill-docs.ts'

describe.each(PAGES_WITH_FIGURES)('the figures in %s', name => {
  const page = readFileSync(fileURLToPath(new URL(`../../../${name}`, import.meta.url)), 'utf8')

  it('are those of bench/results (npm run bench -- --docs writes them)', () => {
    expect(page).toContain('<!-- figures: ')
    expect(fill(page)).toBe(page)
  })
})

it('says which tables there are when a page asks for another', () => {
  expect(() => fill('<!-- figures: nothing -->\n<!-- end -->')).toThrow(/no figures "nothing"; there are /)
})
