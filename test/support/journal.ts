/**
 * The journal of a test database: a trigger notes every change of a job's row, with Postgres's clock. What is rolled back
 * leaves no trace. `auditJournal` reads from it what the tables cannot tell any more: the way each job went.
 */
import type { Violation } from '../../src/index.ts'
import type { TestDatabase } from './database.ts'

/** One stay in the state running. Times in microseconds since 1970, by Postgres's clock. */
export interface JournalRun {
  jobId: string
  task: string
  key: string
  worker: number
  token: number
  score: number
  /** When the claim began, and when it had taken the job. */
  claimBeganAt: number
  startedAt: number
  /** Undefined while it runs. */
  endedAt: number | undefined
  /** The state that it went to; `ended` for the history. */
  wentTo: string | undefined
  /** Which attempt it was, 1 for the first. */
  attempt: number
  /** It went back because its worker died. */
  isRescued: boolean
  /** It went back, and its attempt was not used. */
  isGivenBack: boolean
}

const INSTALL = `
  create schema journal;
  grant usage on schema journal to public;
  -- In the order of its numbers: two changes of one job are told apart by the lock on its row.
  create table journal.changes (
    no bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    began timestamptz not null default now(),
    tx xid8 not null default pg_current_xact_id(),
    job_id uuid not null,
    was longshore.job_state,
    state longshore.job_state, -- null: it has left the table
    worker_was int, worker_id int,
    token_was bigint, token bigint,
    slot smallint, key_slot smallint,
    score bigint not null,
    lane int not null,
    attempts_was smallint, attempts smallint,
    rescues_was smallint, rescues smallint,
    is_cancelled boolean not null,
    workflow bigint, workflow_seq bigint
  );

  -- As the owner of the journal, whoever changes jobs.
  create function journal.note_made() returns trigger language plpgsql security definer as $$
  begin
    insert into journal.changes (job_id, state, worker_id, token, slot, key_slot, score, lane, attempts, rescues, is_cancelled,
      workflow, workflow_seq)
    select n.id, n.state, n.worker_id, n.lease_token, n.slot, n.key_slot, n.score, n.lane, n.attempts, n.rescues,
      n.is_cancelled, n.workflow, n.workflow_seq
    from new_rows n;
    return null;
  end $$;
  -- Whatever the function that changes jobs has set for its own plans, and however few rows there were at first.
  create function journal.note_changed() returns trigger language plpgsql security definer
  set enable_hashjoin = on set enable_nestloop = off as $$
  begin
    insert into journal.changes (job_id, was, state, worker_was, worker_id, token_was, token, slot, key_slot, score, lane,
      attempts_was, attempts, rescues_was, rescues, is_cancelled, workflow, workflow_seq)
    select n.id, o.state, n.state, o.worker_id, n.worker_id, o.lease_token, n.lease_token, n.slot, n.key_slot, n.score,
      n.lane, o.attempts, n.attempts, o.rescues, n.rescues, n.is_cancelled, n.workflow, n.workflow_seq
    from old_rows o join new_rows n on n.id = o.id order by n.score, n.id;
    return null;
  end $$;
  create function journal.note_gone() returns trigger language plpgsql security definer as $$
  begin
    insert into journal.changes (job_id, was, worker_was, token_was, slot, key_slot, score, lane, attempts_was, rescues_was,
      is_cancelled, workflow, workflow_seq)
    select o.id, o.state, o.worker_id, o.lease_token, o.slot, o.key_slot, o.score, o.lane, o.attempts, o.rescues,
      o.is_cancelled, o.workflow, o.workflow_seq
    from old_rows o;
    return null;
  end $$;
  create trigger journal_made after insert on longshore.jobs
    referencing new table as new_rows for each statement execute function journal.note_made();
  create trigger journal_changed after update on longshore.jobs
    referencing old table as old_rows new table as new_rows for each statement execute function journal.note_changed();
  create trigger journal_gone after delete on longshore.jobs
    referencing old table as old_rows for each statement execute function journal.note_gone();`

/**
 * Changes with what happened to the same job before. A job that was made and taken away by one transaction never was: a
 * repeated enqueue does that when it finds that the job has ended meanwhile.
 */
const STEPS = `
  with seen as materialized (
    select c.*, bool_or(c.state is null) over tx_of_job and bool_or(c.was is null) over tx_of_job as never_was
    from journal.changes c window tx_of_job as (partition by c.job_id, c.tx)
  ), steps as materialized (
    select s.*, lag(s.no) over way as before, lag(s.state) over way as state_before,
      coalesce(bool_or(s.is_cancelled) over (way rows between unbounded preceding and 1 preceding), false)
        as was_cancelled
    from seen s where not s.never_was
    window way as (partition by s.job_id order by s.no)
  )`

/** Each a query over `steps`, of (problem, job_id), with the number of the invariant. */
const QUESTIONS: readonly [invariant: number, sql: string][] = [
  [
    2,
    `select 'the journal has a gap: it was ' || coalesce(state_before::text, 'gone') || ', then '
       || coalesce(was::text, 'made') as problem, job_id
     from steps where before is not null and was is distinct from state_before`,
  ],
  [
    2,
    `select 'it came back after it had ended' as problem, job_id from steps where before is not null and was is null
     union all
     select 'it went from ' || coalesce(was::text, 'nowhere') || ' to ' || state, job_id
     from steps
     where state is not null and (coalesce(was::text, 'made'), state::text) not in (
       ('made', 'scheduled'), ('made', 'ready'), ('made', 'waiting'),
       ('waiting', 'waiting'), ('waiting', 'scheduled'), ('waiting', 'ready'),
       ('scheduled', 'scheduled'), ('scheduled', 'ready'), ('ready', 'scheduled'), ('ready', 'ready'),
       ('ready', 'running'), ('running', 'running'), ('running', 'ready'), ('running', 'scheduled'))
     union all
     select 'it left as ' || s.was || case when f.id is null then ' without a trace' else ' and ended as ' || f.state end,
       s.job_id
     from steps s left join longshore.finished_jobs f on f.id = s.job_id and f.lease_token = s.token_was
     where s.state is null and (f.id is null or (s.was <> 'running' and f.state <> 'cancelled'
       and (s.was <> 'waiting' or f.state <> 'dependency_failed')))`,
  ],
  [
    3,
    `select format('it was claimed with token %s after token %s', token, token_was) as problem, job_id
     from steps where was = 'ready' and state = 'running' and token <= token_was
     union all
     select format('its token changed from %s to %s, its worker from %s to %s, without a claim', token_was, token, worker_was,
       worker_id), job_id
     from steps
     where was is not null and state is not null and not (was = 'ready' and state = 'running')
       and (token <> token_was or (state = 'running' and worker_id <> worker_was))
     union all
     select format('token %s ended %s of its runs', token_was, count(*)), job_id
     from steps where was = 'running' and state is distinct from 'running'
     group by job_id, token_was having count(*) > 1
     union all
     select format('token %s was given %s times', token, count(*)), job_id
     from steps where was = 'ready' and state = 'running' group by job_id, token having count(*) > 1
     union all
     select format('token %s was given to %s workers', token, count(distinct worker_id)), null
     from steps where was = 'ready' and state = 'running' group by token having count(distinct worker_id) > 1`,
  ],
  [
    8,
    `select 'it was cancelled, and became ' || state as problem, job_id
     from steps where was_cancelled and state is not null and not (was = 'running' and state = 'running')
     union all
     select 'it was cancelled while it ran, and ended as ' || f.state, s.job_id
     from steps s join longshore.finished_jobs f on f.id = s.job_id and f.lease_token = s.token_was
     where s.state is null and s.is_cancelled and f.state <> 'cancelled'`,
  ],
  [
    // Numbers are given under a lock that is held until the commit: whoever has a lower one was there before.
    9,
    `with starts as (
       select workflow, workflow_seq, job_id, no,
         max(workflow_seq) over (partition by workflow order by no rows between unbounded preceding and 1 preceding) as highest
       from steps where workflow is not null and was = 'ready' and state = 'running'
     ), lives as (
       select workflow, workflow_seq, min(no) filter (where was is null) as made, min(no) filter (where state is null) as gone
       from steps where workflow is not null group by workflow, workflow_seq, job_id
     )
     select format('number %s of its workflow started after number %s', workflow_seq, highest) as problem, job_id
     from starts where highest > workflow_seq
     union all
     select format('number %s of its workflow started before number %s had ended', s.workflow_seq, l.workflow_seq), s.job_id
     from starts s join lives l on l.workflow = s.workflow and l.workflow_seq < s.workflow_seq
     where l.made < s.no and coalesce(l.gone > s.no, true)`,
  ],
  [
    14,
    `select format('a claim took it from attempt %s to %s', attempts_was, attempts) as problem, job_id
     from steps where was = 'ready' and state = 'running' and attempts <> attempts_was + 1
     union all
     select format('its run ended with attempts %s → %s and rescues %s → %s', attempts_was, attempts, rescues_was, rescues),
       job_id
     from steps
     -- A retry has used an attempt; what was given back has not, nor what was rescued.
     where was = 'running' and state in ('ready', 'scheduled') and (attempts - attempts_was, rescues - rescues_was) not in
       ((0, 0), (-1, 0), (-1, 1))
     union all
     select format('it had %s attempts and %s rescues, then %s and %s, without a run', attempts_was, rescues_was, attempts,
       rescues), job_id
     from steps
     where was is not null and state is not null and was <> 'running'
       and (rescues <> rescues_was or (state <> 'running' and attempts <> attempts_was))`,
  ],
]

const RUNS = `
  select s.job_id, l.task, l.concurrency_key as key, s.worker_id as worker, s.token::float8 as token,
    s.score::float8 as score, extract(epoch from s.began)::float8 * 1000000 as claim_began_at,
    extract(epoch from s.at)::float8 * 1000000 as started_at,
    extract(epoch from s.ended_at)::float8 * 1000000 as ended_at, s.went_to,
    s.attempts as attempt, s.is_rescued, s.is_given_back and not s.is_rescued as is_given_back
  from (
    select c.*, lead(c.at) over way as ended_at,
      coalesce(lead(c.rescues) over way > c.rescues, false) as is_rescued,
      coalesce(lead(c.attempts) over way < c.attempts, false) as is_given_back,
      case when lead(c.no) over way is not null then coalesce(lead(c.state) over way::text, 'ended') end as went_to
    from journal.changes c
    where c.state is distinct from c.was and 'running' in (c.was, c.state)
    window way as (partition by c.job_id order by c.no)
  ) s
  join longshore.lanes l on l.id = s.lane
  where s.state = 'running'
  order by s.no`

export interface Journal {
  install(): Promise<void>
  /** `isPlanned`: see `TestDatabase.rows`. */
  auditJournal(options?: { isPlanned?: boolean }): Promise<Violation[]>
  /** Every run, in the order of their claims. */
  runs(): Promise<JournalRun[]>
}

export function createJournal(database: Pick<TestDatabase, 'rows'>): Journal {
  return {
    async install() {
      await database.rows(INSTALL)
    },
    async auditJournal(options = {}) {
      const found: Violation[] = []
      for (const [invariant, sql] of QUESTIONS) {
        const rows = await database.rows<{ problem: string; job_id: string | null }>(
          `${STEPS} select problem, job_id from (${sql}) found limit 20`,
          [],
          options,
        )
        for (const { problem, job_id } of rows)
          found.push({
            invariant,
            problem,
            ...(job_id ? { jobId: job_id as Violation['jobId'] & string } : {}),
          })
      }
      return found
    },
    async runs() {
      const rows = await database.rows<Record<string, never>>(RUNS)
      return rows.map(row => ({
        jobId: row['job_id'] as unknown as string,
        task: row['task'] as unknown as string,
        key: row['key'] as unknown as string,
        worker: row['worker'] as unknown as number,
        token: row['token'] as unknown as number,
        score: row['score'] as unknown as number,
        claimBeganAt: row['claim_began_at'] as unknown as number,
        startedAt: row['started_at'] as unknown as number,
        endedAt: row['ended_at'] ?? undefined,
        wentTo: row['went_to'] ?? undefined,
        attempt: row['attempt'] as unknown as number,
        isRescued: row['is_rescued'] as unknown as boolean,
        isGivenBack: row['is_given_back'] as unknown as boolean,
      }))
    },
  }
}

/** The most of these runs that there were at one moment. */
export function mostAtOnce(runs: readonly JournalRun[]): number {
  const moments = runs.flatMap(run => [
    { at: run.startedAt, step: 1 },
    { at: run.endedAt ?? Number.POSITIVE_INFINITY, step: -1 },
  ])
  moments.sort((a, b) => a.at - b.at || a.step - b.step)
  let now = 0
  let most = 0
  for (const { step } of moments) {
    now += step
    most = Math.max(most, now)
  }
  return most
}

/** Whether both ran at one moment. */
export function overlaps(a: JournalRun, b: JournalRun): boolean {
  return a.startedAt < (b.endedAt ?? Infinity) && b.startedAt < (a.endedAt ?? Infinity)
}
