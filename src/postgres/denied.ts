/** Owns how a missing privilege becomes an error that says which role to grant. */
import { LongshoreError } from '../job/errors.ts'
import { rolesFor } from './roles.ts'

const INSUFFICIENT_PRIVILEGE = '42501'

/** Only what Postgres refuses of a statement of longshore's own; whatever else is thrown on. `text`: that statement. */
export function explainDenied(error: unknown, text: string): never {
  const { code, message = '' } = error as { code?: unknown; message?: string }
  const [, schema, verb] = /"(\w+)"\.(\w+)/.exec(text) ?? []
  if (code !== INSUFFICIENT_PRIVILEGE || schema === undefined || verb === undefined) throw error
  const object = /permission denied for (?:function|table|view|sequence|relation) (\w+)/.exec(message)?.[1]
  deny(schema, object ?? verb, message, error)
}

/** This user may not call a function that it cannot do without. */
export const denyFunction = (schema: string, name: string): never =>
  deny(schema, name, `permission denied for function ${name}`)

function deny(schema: string, object: string, message: string, cause?: unknown): never {
  const roles = rolesFor(object).map(role => `"${schema}_${role}"`)
  const whom = roles.length > 0 ? roles.join(' or ') : `"${schema}_owner"`
  throw new LongshoreError(
    'PERMISSION_DENIED',
    `Postgres refuses it: ${message}. Grant this user the role that may, ${whom} (or with the prefix that was given); \`longshore migrate --roles\` makes the roles`,
    cause === undefined ? {} : { cause },
  )
}
