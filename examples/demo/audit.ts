/** The audit at the end of the demo: promises, each checked against what Postgres holds. */
import type { FinishedJob } from 'longshore'
import type pg from 'pg'

export async function audit(
  client: pg.Client,
  ended: FinishedJob[],
): Promise<{ isClean: boolean; lines: string[] }> {
  const count = async (sql: string) =>
    (await client.query<{ n: number }>(`select count(*)::int as n ${sql}`)).rows[0]?.n
  const failed = ended.filter(job => job.state === 'failed')
  const checks: [string, boolean][] = [
    [`every one of ${ended.length} acknowledged jobs has ended`, ended.every(job => job.isFinished)],
    ['no job is left unfinished', (await count('from longshore.jobs')) === 0],
    ['no job ended that nobody enqueued', (await count('from longshore.finished_jobs')) === ended.length],
    [
      'a rolled-back transaction left neither its row nor its job',
      (await count('from uploads')) === 20 &&
        (await count("from longshore.finished_jobs where (payload ->> 'image')::int < 40")) === 20,
    ],
    [
      'exactly the three doomed jobs failed, each with its reason',
      failed
        .map(job => job.error?.code)
        .sort()
        .join() === 'HANDLER_FAILED,RESULT_REFUSED,TIMEOUT',
    ],
    [
      'a third of the calls to the partner took three attempts',
      (await count("from longshore.finished_jobs where payload ? 'call' and attempts = 3")) === 100,
    ],
    [
      'no delayed job started before its time',
      (await count('from longshore.finished_jobs where started_at < longshore.run_at_of(score)')) === 0,
    ],
    [
      'attempts never exceed what was allowed',
      (await count('from longshore.finished_jobs where attempts > max_attempts')) === 0,
    ],
  ]
  return {
    isClean: checks.every(([, holds]) => holds),
    lines: checks.map(([what, holds]) => `${holds ? '✓' : '✗'} ${what}`),
  }
}
