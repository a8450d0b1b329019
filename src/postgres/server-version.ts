/** Owns which Postgres servers are supported. */
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'

const OLDEST_MAJOR = 14

/** Codes of a server that cannot be reached or used: wrong address, password, role or database. */
const UNREACHABLE =
  /^(ECONNREFUSED|ENOTFOUND|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|28000|28P01|3D000)$/

/** What a certificate is refused for, as Node spells it. */
const UNTRUSTED =
  /^(ERR_TLS_CERT_ALTNAME_INVALID|CERT_|SELF_SIGNED_CERT_|DEPTH_ZERO_SELF_SIGNED_CERT|UNABLE_TO_)/

/** Turns what the driver says into what to do; whatever else is thrown on. */
export function explainUnreachable(error: unknown): never {
  const code = error instanceof Error ? String((error as { code?: unknown }).code) : ''
  if (UNTRUSTED.test(code)) {
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      `the certificate of Postgres is not trusted: ${(error as Error).message}. Name the file of its authority, sslrootcert=/path/ca.pem in the connection string, or connect by the name that the certificate is for`,
      { cause: error },
    )
  }
  if (!UNREACHABLE.test(code)) throw error
  throw new LongshoreError(
    'STORE_UNAVAILABLE',
    `Postgres cannot be used: ${(error as Error).message || code}. Start it, or correct the connection string`,
    { cause: error },
  )
}

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
