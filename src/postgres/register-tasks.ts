/** The verb *register*: tells Postgres what tasks this process knows. */

import type { Queryable } from '../job/queryable.ts'
import type { Task } from '../job/task.ts'
import { inSchema } from './schema-name.ts'

export async function registerTasks(
  db: Queryable,
  schema: string,
  // biome-ignore lint/suspicious/noExplicitAny: tasks of every type are welcome here
  tasks: readonly Task<any, any, any, any>[],
): Promise<void> {
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
  await db.query(inSchema(schema, 'select longshore.register_tasks($1)'), [JSON.stringify(facts)])
}
