/** Owns the places in README and docs where figures stand: between `<!-- figures: name -->` and `<!-- end -->`. */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { docTables } from './doc-tables.ts'
import { markdownTable } from './report.ts'

/** From the root of the repository. */
export const PAGES_WITH_FIGURES = ['README.md', 'docs/performance.md']

const BLOCK = /(<!-- figures: (.+?) -->\n)[\s\S]*?(<!-- end -->)/g

/** The page as it should be. */
export const fill = (page: string): string =>
  page.replace(BLOCK, (_, begin: string, name: string, end: string) => {
    const table = docTables[name]
    if (!table) throw new Error(`no figures "${name}"; there are ${Object.keys(docTables).join(', ')}`)
    return `${begin}\n${markdownTable(table())}\n\n${end}`
  })

export function fillDocs(): void {
  for (const name of PAGES_WITH_FIGURES) {
    const file = fileURLToPath(new URL(`../../${name}`, import.meta.url))
    writeFileSync(file, fill(readFileSync(file, 'utf8')))
  }
}
