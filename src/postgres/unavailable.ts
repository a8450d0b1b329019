/** Owns trying a call of Postgres again while it is away, and the error that is thrown when it stays away. */
import { LongshoreError } from '../job/errors.ts'
import { messageOf } from '../job/stored-error.ts'
import { type RetryBounds, type RetryPauses, withRetry } from '../runtime/retry.ts'
import { isAway, isTransientError } from './transient-error.ts'

/** Codes of a server that is not there or refuses the login: wrong address, password, role or database. */
const UNUSABLE = /^(ENOTFOUND|28000|28P01|3D000)$/

/** What a certificate is refused for, as Node spells it. */
const UNTRUSTED =
  /^(ERR_TLS_CERT_ALTNAME_INVALID|CERT_|SELF_SIGNED_CERT_|DEPTH_ZERO_SELF_SIGNED_CERT|UNABLE_TO_)/

/** Calls that are tried again while their failure passes by itself. Not for what runs inside a transaction of the user. */
export const patient =
  (patience: RetryPauses & RetryBounds) =>
  <T>(attempt: (tries: number) => Promise<T>): Promise<T> =>
    withRetry(attempt, { ...patience, isTransient: isTransientError }).catch(explainUnavailable)

export function explainUnavailable(error: unknown): never {
  throw toUnavailable(error)
}

/** What the driver says, turned into what to do; anything else as it is. */
export function toUnavailable(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof LongshoreError) return error
  const code = String((error as { code?: unknown }).code ?? '')
  if (UNTRUSTED.test(code)) {
    return new LongshoreError(
      'STORE_UNAVAILABLE',
      `the certificate of Postgres is not trusted: ${messageOf(error)}. Name the file of its authority, sslrootcert=/path/ca.pem in the connection string, or connect by the name that the certificate is for`,
      { cause: error },
    )
  }
  if (!UNUSABLE.test(code) && !isAway(error)) return error
  const said = messageOf(error)
  const shown = said.includes(code) ? said : `${said} (${code})`.trim()
  return new LongshoreError(
    'STORE_UNAVAILABLE',
    `Postgres cannot be used: ${shown}. Start it, wait until it is back, or correct the connection string; then call again (an enqueue with an id of your own, since it may have been stored)`,
    { cause: error },
  )
}
