/** Owns how a missing privilege becomes an error that says which role to grant. */
import { LongshoreError } from '../job/errors.ts'
import { rolesFor } from './roles.ts'

const INSUFFICIENT_PRIVILEGE = '42501'

/** Only for a statement of longshore's own that Postgres refuses; other errors are thrown on. `text`: that statement. */
export function explainDenied(error: unknown, text: string): never {
  const { code, message = '' } = error as { code?: unknown; message?: string }
  const [, schema, verb] = /"(\w+)"\.(\w+)/.exec(text) ?? []
  if (code !== INSUFFICIENT_PRIVILEGE || schema === undefined || verb === undefined) throw error
  const [, kind, object = verb] =
    /permission denied for (function|table|view|sequence|relation) (\w+)/.exec(message) ?? []
  const isCall = kind === undefined || kind === 'function'
  deny(schema, isCall ? rolesFor(object) : rolesThatMay(text, object), message, error)
}

/** This user may not call a function that it cannot do without. */
export const denyFunction = (schema: string, name: string): never =>
  deny(schema, rolesFor(name), `permission denied for function ${name}`)

/** Run this statement, of which this table or view was refused. */
function rolesThatMay(text: string, object: string): readonly string[] {
  const isWritten =
    new RegExp(`\\b(?:into|update|delete from) "\\w+"\\.${object}\\b`).test(text) ||
    /\bfor update\b/.test(text)
  const roles = rolesFor(object, isWritten ? 'writes' : 'reads')
  const called = [...text.matchAll(/"\w+"\.(\w+)\(/g)].map(([, name = '']) => rolesFor(name))
  const callers = called.reduce((all, each) => all.filter(role => each.includes(role)), called[0] ?? roles)
  const both = roles.filter(role => callers.includes(role))
  if (both.length === 0) return callers
  // A reader may look at all that any look asks for, the others at some of it.
  return !isWritten && both.includes('reader') ? ['reader'] : both
}

function deny(schema: string, roles: readonly string[], message: string, cause?: unknown): never {
  const whom = (roles.length > 0 ? roles : ['owner']).map(role => `"${schema}_${role}"`).join(' or ')
  throw new LongshoreError(
    'PERMISSION_DENIED',
    `Postgres refuses it: ${message}. Grant this user the role that may, ${whom} (or with the prefix that was given); \`longshore migrate --roles\` makes the roles${roles.includes('producer') ? '. A job is seen by the service that enqueued it: grant it through the role of that service' : ''}`,
    cause === undefined ? {} : { cause },
  )
}
