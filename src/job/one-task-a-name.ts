/**
 * Owns that a name means one task wherever tasks meet: in one producer. Two definitions of a name are welcome as long as they say
 * the same, since a module may be loaded twice (two bundles, a reload in development); so is a copy of a task, `{ ...task, queue }`.
 */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { LongshoreError } from './errors.ts'
import { shown } from './shown.ts'
import type { Task } from './task.ts'

const SETTINGS = [
  'queue',
  'tag',
  'maxAttempts',
  'maxRescues',
  'concurrency',
  'concurrencyPerKey',
  'timeoutMs',
] as const
const MOST_KNOWN = 10_000

/** A check for tasks that are used together; throws `TASK_INVALID` for the second of two that differ. */
export function oneTaskAName(): (task: Task) => void {
  const byName = new Map<string, Task>()
  const accepted = new WeakSet<Task>()
  return task => {
    if (accepted.has(task)) return
    const known = byName.get(task.name)
    if (known) refuseOther(known, task)
    else {
      if (byName.size >= MOST_KNOWN) byName.clear()
      byName.set(task.name, task)
    }
    accepted.add(task)
  }
}

function refuseOther(known: Task, other: Task): void {
  // A copy has the function of what it was made from.
  if (known.handle === other.handle) return
  const different = SETTINGS.find(setting => known[setting] !== other[setting])
  const differs = different
    ? `${different} is ${shown(known[different])} in one and ${shown(other[different])} in the other`
    : (['payload', 'result'] as const)
        .filter(what => areDifferent(formOf(known[what]), formOf(other[what])))
        .map(what => `their ${what} schemas differ`)[0]
  if (differs === undefined) return
  throw new LongshoreError(
    'TASK_INVALID',
    `two tasks are called ${known.name}, and ${differs}: define it once and import it, or give one of them another name. If you have just changed it, restart the process`,
  )
}

const areDifferent = (a: string | undefined, b: string | undefined) =>
  a !== undefined && b !== undefined && a !== b

/** What a schema asks for, as far as it can say so: a library may not, and what has no form in JSON Schema has none here. */
function formOf(schema: StandardSchemaV1 | undefined): string | undefined {
  if (!schema) return 'none'
  const standard = schema['~standard'] as { jsonSchema?: { input?: (options: object) => unknown } }
  try {
    return JSON.stringify(standard.jsonSchema?.input?.({ target: 'draft-2020-12' }))
  } catch {
    return undefined
  }
}
