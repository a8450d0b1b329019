/** Owns how what longshore's own SQL refuses becomes an error of longshore's own. */
import { type ErrorCode, LongshoreError } from '../job/errors.ts'

/** What the functions raise. */
const REFUSED: Readonly<Record<string, ErrorCode>> = {
  LS001: 'CONSTRAINT_INVALID',
  LS002: 'GROUP_NOT_FOUND',
  LS003: 'GROUP_ENDED',
  LS004: 'GROUP_INVALID',
}

/** Turns that into an error which says what to do; whatever else is thrown on. */
export function explainRefusal(error: unknown): never {
  const code = error instanceof Error ? REFUSED[String((error as { code?: unknown }).code)] : undefined
  if (code === undefined) throw error
  const { hint, message } = error as Error & { hint?: unknown }
  const text = message.replace(/^longshore: /, '')
  throw new LongshoreError(code, typeof hint === 'string' ? `${text}. ${hint.replace(/\.$/, '')}` : text, {
    cause: error,
  })
}
