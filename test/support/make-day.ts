/** Partitions of days that are long over, as the upkeep would have made them: of the owner of their table. */
import type { TestDatabase } from './database.ts'

export type DayTable = 'finished_jobs' | 'job_logs' | 'job_progress'

/** Such as '2020-01-01'. Returns its name. */
export async function makeDay(
  database: Pick<TestDatabase, 'rows'>,
  day: string,
  table: DayTable = 'finished_jobs',
): Promise<string> {
  const name = `${table}_${day.replaceAll('-', '')}`
  const [owner] = await database.rows<{ name: string }>(
    'select pg_get_userbyid(relowner)::text as name from pg_class where oid = $1::regclass',
    [`longshore.${table}`],
  )
  await database.rows(`
    create table longshore.${name} (like longshore.${table} including all)
      ${table === 'job_progress' ? 'with (fillfactor = 50)' : ''};
    alter table longshore.${name} owner to "${owner?.name}";
    alter table longshore.${table} attach partition longshore.${name}
      for values from (date '${day}') to (date '${day}' + 1)`)
  return name
}
