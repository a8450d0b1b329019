/** Owns a day of the history that is over: ended jobs in groups of 100, each of which ran after the one before it. */
import type { Database } from '../stores/database.ts'

const CHUNK = 100_000
const GROUP = 100
/** One group in so many has not ended. */
const OPEN = 100

/** Returns the name of its partition. */
export async function storeOldDay(database: Database, jobs: number): Promise<string> {
  const [day] = await database.query(
    "select to_char((now() at time zone 'utc')::date - 1, 'YYYYMMDD') as name",
  )
  const name = `finished_jobs_${day?.['name']}`
  await database.query(`
    create table longshore.${name} (like longshore.finished_jobs including all);
    alter table longshore.finished_jobs attach partition longshore.${name}
      for values from (date '${day?.['name']}') to (date '${day?.['name']}' + 1)`)
  const id = (n: string) => `md5('job ' || ${n})::uuid`
  const group = (n: string) => `md5('group ' || ${n})::uuid`
  for (let from = 0; from < jobs; from += CHUNK) {
    const to = Math.min(jobs, from + CHUNK) - 1
    await database.query(`
      insert into longshore.groups (id, created_at, end_state, finished_at, succeeded)
      select ${group('g')}, now(), case when g % ${OPEN} > 0 then 'succeeded' end, case when g % ${OPEN} > 0 then now() end,
        case when g % ${OPEN} > 0 then ${GROUP} else 0 end
      from generate_series(${from / GROUP}, ${Math.floor(to / GROUP)}) g`)
    await database.query(`
      insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane, worker_id, keep_until,
        state, attempts, max_attempts, payload, group_id)
      select ${id('n')}, n, 1, now(), now(), now(), 1, 1, date '${day?.['name']}', 'succeeded', 1, 3,
        '{"tenant":"acme-emea-01","kind":"noop","note":"xxxxxxxxxxxxxxxxxxxxxxxx"}', ${group(`n / ${GROUP}`)}
      from generate_series(${from}, ${to}) n`)
    await database.query(`
      insert into longshore.edges (parent, child)
      select ${id('n - 1')}, ${id('n')} from generate_series(${from}, ${to}) n where n % ${GROUP} > 0`)
  }
  return name
}
