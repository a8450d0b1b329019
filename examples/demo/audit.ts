/** The audit at the end of the demo: promises, each checked against what Postgres holds and the demo has seen. */
import { type FinishedJob, audit as findViolations } from 'longshore'
import type pg from 'pg'

export interface Seen {
  ended: FinishedJob[]
  /** How the build graph and its jobs ended. */
  build: { ids: string[]; state: string; states: Record<string, string | undefined> }
  /** Jobs that a worker was running when it was killed. */
  rescued: string[]
  /** The most charges that were seen running at one moment. */
  mostCharges: number
  /** Ready jobs that Redis held when it was emptied. */
  flushed: number
  isBuiltAnew: boolean
  /** How often workers were woken through Redis, before it was built anew and after. */
  bells: { before: number; after: number }
}

/** What of the build does not succeed. */
const BUILD_ENDS: Record<string, string> = { test: 'failed', package: 'dependency_failed' }

export async function audit(
  stores: { postgres: string; redis: string },
  client: pg.Client,
  { ended, build, rescued, mostCharges, flushed, isBuiltAnew, bells }: Seen,
): Promise<{ isClean: boolean; lines: string[] }> {
  const count = async (sql: string, ...values: unknown[]) =>
    (await client.query<{ n: number }>(`select count(*)::int as n ${sql}`, values)).rows[0]?.n
  const failed = ended.filter(job => job.state === 'failed' && !build.ids.includes(job.id))
  const violations = await findViolations({
    ...stores,
    enqueued: ended.map(job => job.id),
    isDrained: true,
  })
  const ranElsewhere = `from longshore.finished_jobs f join longshore.lanes l on l.id = f.lane
    where l.task = 'render-scene' and not (f.result ->> 'worker' = any($1)) and (f.payload ->> 'scene')::int`
  const checks: [string, boolean][] = [
    [`every one of ${ended.length} acknowledged jobs has ended`, ended.every(job => job.isFinished)],
    ['no job is left unfinished', (await count('from longshore.jobs')) === 0],
    ['no job ended that nobody enqueued', (await count('from longshore.finished_jobs')) === ended.length],
    [
      `longshore's own audit of its invariants finds no violation${violations.length > 0 ? `: ${violations[0]?.problem}` : ''}`,
      violations.length === 0,
    ],
    [
      `jobs went through Redis: workers were rung there ${bells.before} times before it was built anew, ${bells.after} times after`,
      bells.before > 0 && bells.after > 0,
    ],
    [
      `Redis was emptied with ${flushed} ready jobs in it, was built anew, and nothing was lost`,
      flushed > 0 && isBuiltAnew && ended.every(job => job.isFinished),
    ],
    [
      'a rolled-back transaction left neither its row nor its job',
      (await count('from uploads')) === 20 &&
        (await count("from longshore.finished_jobs where (payload ->> 'image')::int < 40")) === 20,
    ],
    [
      'every scene ran where there is what it needs',
      (await count(`${ranElsewhere} < 50`, ['anna', 'bob'])) === 0 &&
        (await count(`${ranElsewhere} >= 50`, ['anna', 'cleo'])) === 0,
    ],
    [
      `at most four charges ran at once (${mostCharges} were seen)`,
      mostCharges <= 4 && (await count("from longshore.finished_jobs where payload ? 'order'")) === 100,
    ],
    [
      `all ${rescued.length} jobs of the killed worker were rescued and ended elsewhere`,
      rescued.length > 0 &&
        (await count(
          `from longshore.finished_jobs where id = any($1) and state = 'succeeded' and result ->> 'worker' <> 'cleo'`,
          rescued,
        )) === rescued.length,
    ],
    [
      'exactly the three doomed jobs failed, each with its reason',
      failed
        .map(job => job.error?.code)
        .sort()
        .join() === 'HANDLER_FAILED,RESULT_REFUSED,TIMEOUT',
    ],
    [
      'the build failed in one branch: its test failed, package could not run, all else ran, clean up too',
      build.state === 'failed' &&
        Object.entries(build.states).every(([name, state]) => state === (BUILD_ENDS[name] ?? 'succeeded')) &&
        (await count('from longshore.finished_jobs where result = \'{"bytes": 3294}\'')) === 1,
    ],
    [
      'the steps of the workflow were done in order, each once',
      (await count('from (select array_agg(step order by no) as done from shipped) s where done = $1', [
        ...Array(10).keys(),
      ])) === 1,
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
