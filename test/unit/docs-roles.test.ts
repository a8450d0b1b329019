/** The guide's table of who may do what is made from the rows that tests prove. `LONGSHORE_FILL_DOCS=1` writes it. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { ROLE_ROWS, roleTable } from '../support/role-table.ts'

const GUIDE = 'docs/guide.md'
const TABLE =
  /(<!-- who may do what: made by test\/unit\/docs-roles.test.ts -->\n\n)([\s\S]*?)(\n\n<!-- end -->)/

it('[X15] the guide has the table that is made from the tests', () => {
  const guide = readFileSync(GUIDE, 'utf8')
  if (process.env['LONGSHORE_FILL_DOCS'])
    writeFileSync(
      GUIDE,
      guide.replace(TABLE, (_, begin, __, end) => `${begin}${roleTable()}${end}`),
    )
  expect(TABLE.exec(readFileSync(GUIDE, 'utf8'))?.[2]).toBe(roleTable())
})

it('[X15] every row of the table has a test', () => {
  const tests = readdirSync('test/flow')
    .map(file => readFileSync(`test/flow/${file}`, 'utf8'))
    .filter(text => text.includes('role-table.ts'))
    .join()
  expect(ROLE_ROWS.map(({ what }) => what).filter(what => !tests.includes(what))).toEqual([])
})
