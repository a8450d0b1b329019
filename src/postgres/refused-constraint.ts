/** Owns how a constraint or property that Postgres refused becomes an error of longshore's own. */
import { LongshoreError } from '../job/errors.ts'

/** What longshore's SQL raises for constraints and properties. */
const REFUSED = 'LS001'

/** Turns that into an error which says what to do; whatever else is thrown on. */
export function explainRefusedConstraint(error: unknown): never {
  if (!(error instanceof Error) || (error as { code?: unknown }).code !== REFUSED) throw error
  const hint = (error as { hint?: unknown }).hint
  const message = error.message.replace(/^longshore: /, '')
  throw new LongshoreError(
    'CONSTRAINT_INVALID',
    typeof hint === 'string' ? `${message}. ${hint.replace(/\.$/, '')}` : message,
    { cause: error },
  )
}
