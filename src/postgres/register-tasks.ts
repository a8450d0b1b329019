/** The verb *register*: tells Postgres what tasks this process knows. */

import type { Queryable } from '../job/queryable.ts'
import type { Task } from '../job/task.ts'
import { explainRefusal } from './refused.ts'
import { inSchema } from './schema-name.ts'

export async function registerTasks(db: Queryable, schema: string, tasks: readonly Task[]): Promise<void> {
  const facts = tasks.map(
    ({ name, queue, tag, maxAttempts, maxRescues, concurrency, concurrencyPerKey }) => ({
      name,
      queue,
      tag,
      maxAttempts,
      maxRescues,
      concurrency,
      concurrencyPerKey,
    }),
  )
  // A producer that may not change limits registers its tasks without them: the workers set those.
  const { rows } = await db.query("select has_function_privilege($1, 'execute') as may_limit", [
    `"${schema}".register_tasks(jsonb)`,
  ])
  const verb = rows[0]?.['may_limit'] ? 'register_tasks' : 'register_tasks_if_new'
  await db
    .query(inSchema(schema, `select longshore.${verb}($1)`), [JSON.stringify(facts)])
    .catch(explainRefusal)
}
