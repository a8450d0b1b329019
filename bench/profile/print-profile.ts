/** Owns the report of `--profile`: what a job costs, function by function and statement by statement. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { formatTable } from '../report/print.ts'
import type { Database } from '../stores/database.ts'
import { readProfile } from './top-functions.ts'

const SHOWN_FUNCTIONS = 25
const SHOWN_STATEMENTS = 12

export function formatProfiles(folder: string, jobs: number): string {
  const files = readdirSync(folder).filter(file => file.endsWith('.cpuprofile'))
  return files
    .map(file => {
      const { functions, busyMs, idleMs } = readProfile(join(folder, file))
      const rows = functions
        .slice(0, SHOWN_FUNCTIONS)
        .map(({ name, place, selfMs }) => [
          `${((selfMs / busyMs) * 100).toFixed(1)} %`,
          ((selfMs * 1000) / jobs).toFixed(2),
          name,
          place,
        ])
      const whole = `${join(folder, file)}: busy ${Math.round(busyMs)} ms, idle ${Math.round(idleMs)} ms, ${jobs.toLocaleString('en-US')} jobs`
      return `${whole}\n${formatTable({ head: ['self', 'µs/job', 'function', 'where'], rows })}`
    })
    .join('\n\n')
}

/** By `pg_stat_statements`, statements inside functions included: the time of a function holds that of its statements
 * and of planning them. */
export async function formatStatements(database: Database, jobs: number): Promise<string> {
  const rows = await database.query(`
    select s.calls, s.rows, s.total_exec_time as ms, s.total_plan_time as plan, s.wal_bytes::float8 as wal, s.toplevel,
      regexp_replace(left(s.query, 160), '\\s+', ' ', 'g') as text
    from pg_stat_statements s join pg_database d on d.oid = s.dbid
    where d.datname = current_database() and s.calls > 0 and s.query !~ 'pg_stat_statements'
    order by s.total_exec_time + s.total_plan_time desc limit ${SHOWN_STATEMENTS}`)
  return formatTable({
    head: ['µs/job', 'ms/call', 'plan ms/call', 'calls', 'rows', 'WAL B/job', 'level', 'statement'],
    rows: rows.map(row => [
      ((Number(row['ms']) * 1000) / jobs).toFixed(2),
      (Number(row['ms']) / Number(row['calls'])).toFixed(3),
      (Number(row['plan']) / Number(row['calls'])).toFixed(3),
      String(row['calls']),
      String(row['rows']),
      String(Math.round(Number(row['wal']) / jobs)),
      row['toplevel'] ? 'top' : 'inner',
      String(row['text']).slice(0, 110),
    ]),
  })
}
