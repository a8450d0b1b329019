/** Owns which Postgres servers are supported. */
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'

const OLDEST_MAJOR = 14

export async function checkServerVersion(client: Queryable): Promise<void> {
  const { rows } = await client.query("select current_setting('server_version_num')::int as number")
  const major = Math.floor(Number(rows[0]?.['number']) / 10_000)
  if (major < OLDEST_MAJOR) {
    throw new LongshoreError(
      'STORE_UNSUPPORTED',
      `Postgres ${major} is too old: longshore needs Postgres ${OLDEST_MAJOR} or newer; upgrade the server`,
    )
  }
}
