/** The verb *register*: tells Postgres what tasks this process knows. */
import type { Task } from '../job/task.ts'
import type { Queryable } from './queryable.ts'
import { inSchema } from './schema-name.ts'

export async function registerTasks(
  db: Queryable,
  schema: string,
  tasks: readonly Pick<Task, 'name' | 'queue' | 'tag' | 'maxAttempts'>[],
): Promise<void> {
  const facts = tasks.map(({ name, queue, tag, maxAttempts }) => ({ name, queue, tag, maxAttempts }))
  await db.query(inSchema(schema, 'select longshore.register_tasks($1)'), [JSON.stringify(facts)])
}
