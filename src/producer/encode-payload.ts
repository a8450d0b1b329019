/** Owns the way of a payload into the database: checked against its task's schema, then stored as it was given. */
import { LongshoreError } from '../job/errors.ts'
import { type EncodedJson, encodeJson } from '../job/json.ts'
import { messageOf } from '../job/stored-error.ts'
import type { Task } from '../job/task.ts'
import { type Validated, validate } from '../job/validate.ts'

/**
 * JSON text of a payload. The input is kept, not the schema's output: the worker parses it again, and what a schema
 * turns into a Date or a class could not be stored.
 */
export function encodePayload(task: Task, payload: unknown, maxBytes: number): string | Promise<string> {
  const checked = check(task, payload)
  if (!(checked instanceof Promise)) {
    refuseMisfit(task, checked)
    return textOf(task, encodeJson(payload, maxBytes))
  }
  // As it is at the call: the caller may change it while the schema looks.
  const encoded = encodeJson(payload, maxBytes)
  return checked.then(validated => {
    refuseMisfit(task, validated)
    return textOf(task, encoded)
  })
}

/** All of them as they are at the call, or the first that is refused. At once where every schema answers at once. */
export function encodeAll(
  jobs: readonly { task: Task; payload: unknown }[],
  maxBytes: number,
): string[] | Promise<string[]> {
  const encoded: (string | Promise<string>)[] = []
  try {
    for (const { task, payload } of jobs) encoded.push(encodePayload(task, payload, maxBytes))
  } catch (error) {
    for (const other of encoded) Promise.resolve(other).catch(() => undefined) // the caller hears of one
    throw error
  }
  return encoded.every(text => typeof text === 'string') ? encoded : Promise.all(encoded)
}

/** A schema should not throw, but what it looks at may: a getter, say. */
function check(task: Task, payload: unknown): Validated | Promise<Validated> {
  try {
    const validated = validate(task.payload, payload)
    return validated instanceof Promise ? validated.catch(toProblem) : validated
  } catch (error) {
    return toProblem(error)
  }
}

const toProblem = (error: unknown): Validated => ({
  ok: false,
  problem: `its schema could not check it: ${messageOf(error)}`,
})

function refuseMisfit(task: Task, validated: Validated): void {
  if (validated.ok) return
  throw new LongshoreError(
    'PAYLOAD_INVALID',
    `the payload does not fit task ${task.name}: ${validated.problem}`,
  )
}

function textOf(task: Task, encoded: EncodedJson): string {
  if (encoded.ok) return encoded.text
  throw new LongshoreError(
    'PAYLOAD_REFUSED',
    `the payload for task ${task.name} cannot be stored: ${encoded.problem}`,
  )
}
