/** The verb *enqueue*: hands new jobs to `enqueue_jobs` in one statement. */
import type { Shape } from '../job/enqueue-options.ts'
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { explainRefusedConstraint } from './refused-constraint.ts'
import { inSchema } from './schema-name.ts'

export interface NewJob {
  id: JobId
  /** JSON text: what jobs of one call have in common, see `Shape`. Equal texts travel once. */
  shape: string
  /** JSON text. */
  payload: string
}

export const shapeText = (shape: Shape): string => JSON.stringify(shape)

/**
 * Insert jobs. `isChecked`: the ids may be known already, then those jobs are left alone. Returns the ids that were
 * made, or undefined where all of them are new by construction.
 */
export async function enqueueJobs(
  db: Queryable,
  schema: string,
  jobs: NewJob[],
  isChecked: boolean,
): Promise<Set<string> | undefined> {
  const numbers = new Map<string, number>()
  const shapeNumbers = jobs.map(job => {
    let number = numbers.get(job.shape)
    if (number === undefined) {
      number = numbers.size + 1
      numbers.set(job.shape, number)
    }
    return number
  })
  const text = isChecked
    ? 'select longshore.enqueue_jobs($1, $2, $3, $4, true)::text[] as made'
    : 'select from longshore.enqueue_jobs($1, $2, $3, $4, false)'
  try {
    const { rows } = await db.query(inSchema(schema, text), [
      `[${[...numbers.keys()].join(',')}]`,
      `{${jobs.map(job => job.id).join(',')}}`,
      numbers.size === 1 ? null : `{${shapeNumbers.join(',')}}`,
      jobs.map(job => job.payload).join('\n'),
    ])
    return isChecked ? new Set(rows[0]?.['made'] as string[]) : undefined
  } catch (error) {
    return explainRefusedConstraint(error)
  }
}

/** Make sure that the lane for jobs of this shape exists. Not for a connection inside a user's transaction. */
export async function makeLane(db: Queryable, schema: string, shape: Shape): Promise<void> {
  await db
    .query(inSchema(schema, 'select longshore.make_lane($1, $2, $3, $4, $5)'), [
      shape.queue,
      shape.task,
      shape.tag,
      shape.constraintTag,
      shape.concurrencyKey ?? '',
    ])
    .catch(explainRefusedConstraint)
}
