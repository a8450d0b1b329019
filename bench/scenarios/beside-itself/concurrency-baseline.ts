/** L9: do limits cost anything where nothing is limited? Against the same build with the path for limits taken out. */
import { readFileSync } from 'node:fs'
import { drain } from '../../loads/drain.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import type { Scenario } from '../scenario.ts'

/** Tasks that no worker here serves: they have limits, and keys that are said to have ready jobs. */
const ELSEWHERE = `
  select longshore.register_tasks(jsonb_agg(jsonb_build_object('name', 'elsewhere-' || n, 'queue', 'default',
    'tag', 'default', 'maxAttempts', 3, 'maxRescues', 10, 'concurrency', 10, 'concurrencyPerKey', 1)))
  from generate_series(1, 20) n;
  select longshore.enqueue_jobs(jsonb_agg(jsonb_build_object('queue', 'default', 'task', 'elsewhere-' || n,
      'tag', 'default', 'constraintTag', 'c:', 'concurrencyKey', 'key', 'maxAttempts', 3, 'priority', 0,
      'delayMs', 0)),
    array_agg(longshore.new_id()), array_agg(n), string_agg('{}', E'\\n'), false)
  from generate_series(1, 20) n;
  delete from longshore.jobs;`

const WITHOUT_LIMITS = readFileSync(new URL('without-limits.sql', import.meta.url), 'utf8')

export const concurrencyBaseline: Scenario = {
  id: 'concurrency-baseline',
  question: 'L9 drain without limits, four worker processes',
  figures: [JOBS_PER_SECOND],
  variants: [
    { name: 'no limits', workload: {} },
    { name: 'limits elsewhere', workload: { sql: ELSEWHERE } },
    { name: 'path taken out', workload: { sql: WITHOUT_LIMITS } },
  ],
  measure: setting => drain(setting, 4),
}
