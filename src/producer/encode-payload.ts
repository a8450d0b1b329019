/** Owns the way of a payload into the database: checked against its task's schema, then stored as it was given. */
import { LongshoreError } from '../job/errors.ts'
import { encodeJson } from '../job/json.ts'
import type { Task } from '../job/task.ts'
import { type Validated, validate } from '../job/validate.ts'

/**
 * JSON text of a payload. The input is kept, not the schema's output: the worker parses it again, and what a schema
 * turns into a Date or a class could not be stored.
 */
export function encodePayload(task: Task, payload: unknown, maxBytes: number): string | Promise<string> {
  const validated = validate(task.payload, payload)
  return validated instanceof Promise
    ? validated.then(outcome => encode(task, payload, outcome, maxBytes))
    : encode(task, payload, validated, maxBytes)
}

function encode(task: Task, payload: unknown, validated: Validated, maxBytes: number): string {
  if (!validated.ok) {
    throw new LongshoreError(
      'PAYLOAD_INVALID',
      `the payload does not fit task ${task.name}: ${validated.problem}`,
    )
  }
  const encoded = encodeJson(payload, maxBytes)
  if (!encoded.ok) {
    throw new LongshoreError(
      'PAYLOAD_REFUSED',
      `the payload for task ${task.name} cannot be stored: ${encoded.problem}`,
    )
  }
  return encoded.text
}
