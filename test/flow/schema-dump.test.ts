/** The dump of the schema beside the migrations: one look shows all columns, and a change of a migration shows as a change of it. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { dumpSchema } from '../support/dump-schema.ts'

const database = useDatabase()

it('docs/schema.sql is what a migrated database holds', async () => {
  const dump = await dumpSchema(await database.connect())
  expect(dump, 'the schema has changed: run `npm run schema:dump`').toBe(
    readFileSync('docs/schema.sql', 'utf8'),
  )
})
