/** `npm run schema:dump`: writes docs/schema.sql from a newly migrated database. */
import { writeFileSync } from 'node:fs'
import pg from 'pg'
import { startPostgres } from '../src/dev/index.ts'
import { migrate } from '../src/index.ts'
import { dumpSchema } from '../test/support/dump-schema.ts'

const postgres = await startPostgres()
const client = new pg.Client(postgres.url)
try {
  await migrate({ postgres: postgres.url })
  await client.connect()
  writeFileSync('docs/schema.sql', await dumpSchema(client))
} finally {
  await client.end()
  await postgres.stop()
}
