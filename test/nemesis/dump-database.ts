/** Leaves all that Postgres holds in a folder, a file a table, a line of JSON a row. */
import { appendFileSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Stage } from './stage.ts'

const PAGE = 5000

export async function dumpDatabase(stage: Pick<Stage, 'rows'>, folder: string): Promise<void> {
  const into = join(folder, 'database')
  mkdirSync(into)
  const tables = await stage.rows<{ name: string }>(
    `select format('%I.%I', schemaname, tablename) as name from pg_tables
     where schemaname in ('longshore', 'journal', 'public') order by 1`,
  )
  for (const { name } of tables) {
    const pages = { after: '(0,0)' }
    for (let isLast = false; !isLast; ) {
      // Nothing moves any more, so places stay what they are.
      const rows = await stage.rows<{ place: string; line: string }>(
        `select t.ctid::text as place, row_to_json(t)::text as line from only ${name} t where t.ctid > $1::tid order by t.ctid
         limit ${PAGE}`,
        [pages.after],
      )
      isLast = rows.length < PAGE
      pages.after = rows.at(-1)?.place ?? pages.after
      appendFileSync(join(into, `${name}.jsonl`), rows.map(({ line }) => `${line}\n`).join(''))
    }
  }
}
