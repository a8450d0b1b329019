-- Jobs by id, with payload and result: of the history and, unless only those that have ended are asked for, of the unfinished. A
-- producer may read no table: it can read its own jobs, by id.
-- public: producer
create function longshore.read_jobs(p_ids uuid[], p_only_ended boolean) returns table (
  id uuid, state longshore.job_state, payload jsonb, attempts smallint, max_attempts smallint, created_at timestamptz,
  started_at timestamptz, worker_id int, error jsonb, priority int, run_at timestamptz, task text, queue text, tag text,
  constraint_tag text, finished_at timestamptz, result jsonb, has_worker boolean
)
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
-- By the primary keys, whatever the statistics say.
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_role oid := longshore.acting_role();
begin
  -- Both from one snapshot: the function is stable.
  if not p_only_ended then
    return query
    select j.id, j.state, j.payload, j.attempts, j.max_attempts, j.created_at, j.started_at, j.worker_id, j.error,
      longshore.priority_of(j.score), longshore.run_at_of(j.score), l.task, l.queue, l.tag, l.constraint_tag,
      null::timestamptz, null::jsonb,
      j.state <> 'running' and exists (select from longshore.eligible_workers(j.lane))
    from longshore.jobs j left join longshore.lanes l on l.id = j.lane
    where j.id = any (p_ids) and longshore.is_own(v_role, j.enqueued_by);
  end if;
  return query
  select f.id, f.state, f.payload, f.attempts, f.max_attempts, f.created_at, f.started_at, f.worker_id, f.error,
    longshore.priority_of(f.score), longshore.run_at_of(f.score), l.task, l.queue, l.tag, l.constraint_tag,
    f.finished_at, f.result, false
  from longshore.finished_jobs f left join longshore.lanes l on l.id = f.lane
  where f.id = any (p_ids) and longshore.is_own(v_role, f.enqueued_by);
end
$$;
