/** Owns checking a value against a Standard Schema, and saying in one line what does not fit. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { cut } from './shown.ts'

export type Validated = { ok: true; value: unknown } | { ok: false; problem: string }

/** Synchronous where the schema is: most are, and a promise per job is not free. */
export function validate(
  schema: StandardSchemaV1 | undefined,
  value: unknown,
): Validated | Promise<Validated> {
  if (!schema) return { ok: true, value }
  const outcome = schema['~standard'].validate(value)
  return 'then' in outcome ? Promise.resolve(outcome).then(toValidated) : toValidated(outcome)
}

function toValidated(outcome: StandardSchemaV1.Result<unknown>): Validated {
  if (!outcome.issues) return { ok: true, value: outcome.value }
  const shown = outcome.issues.slice(0, 5).map(issue => {
    const path = issue.path?.map(part => String(typeof part === 'object' ? part.key : part)).join('.')
    const said = cut(String(issue.message), 500)
    return path ? `${cut(path)}: ${said}` : said
  })
  const more = outcome.issues.length - shown.length
  return { ok: false, problem: shown.join('; ') + (more > 0 ? ` (and ${more} more)` : '') }
}
