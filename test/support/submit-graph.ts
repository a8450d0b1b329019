/** Groups for tests, written down as who runs after whom. */
import type { GroupJob, GroupRef, Producer, Task } from '../../src/index.ts'
import type { TestDatabase } from './database.ts'

type Policy = 'fail' | 'run' | 'cancel'
/** By name: what each job runs after, with a policy where it is not `fail`. */
export type Graph<Name extends string> = Record<Name, readonly (Name | readonly [Name, Policy])[]>

export interface Submitted<Name extends string> {
  group: GroupRef
  jobs: Record<Name, GroupJob>
}

/** Each job's payload is its name. */
export async function submitGraph<Name extends string>(
  producer: Producer,
  task: Task<string, string>,
  graph: Graph<NoInfer<Name>> & Record<Name, unknown>,
): Promise<Submitted<Name>> {
  const group = producer.group()
  const names = Object.keys(graph) as Name[]
  const jobs = Object.fromEntries(names.map(name => [name, group.add(task, name, { name })])) as Record<
    Name,
    GroupJob
  >
  for (const name of names)
    for (const parent of graph[name] as Graph<Name>[Name])
      jobs[name].after(
        typeof parent === 'string'
          ? jobs[parent as Name]
          : { job: jobs[parent[0] as Name], onFailure: parent[1] as Policy },
      )
  await group.submit()
  return { group, jobs }
}

/** The state of each job by its payload. */
export async function statesOf(
  database: TestDatabase,
  group: GroupRef | string,
): Promise<Record<string, string>> {
  const rows = await database.rows<{ name: string; state: string }>(
    `select payload #>> '{}' as name, state from longshore.jobs where group_id = $1
     union all select payload #>> '{}', state from longshore.finished_jobs where group_id = $1`,
    [typeof group === 'string' ? group : group.id],
  )
  return Object.fromEntries(rows.map(row => [row.name, row.state]))
}
