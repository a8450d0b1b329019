-- The parents of a job that this worker runs, with how they ended: a page in id order, behind p_after; of one task, if one is named.
-- public: worker
create function longshore.read_parents(
  p_worker int, p_child uuid, p_token bigint, p_after uuid, p_task text, p_limit int, p_secret bytea default null
) returns table (
  id uuid, task text, state longshore.job_state, result jsonb, error jsonb
)
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  perform longshore.need_run(p_worker, p_child, p_token, p_secret);
  return query
  select f.id, l.task, f.state, f.result, f.error
  from longshore.edges e
  -- One by one: a planner that takes the history for small would read all of it.
  cross join lateral (
    select f.id, f.state, f.result, f.error, f.lane from longshore.finished_jobs f
    where f.id = e.parent order by f.finished_at desc limit 1
  ) f
  join longshore.lanes l on l.id = f.lane
  where e.child = p_child and e.parent > p_after and (p_task is null or l.task = p_task)
  order by e.parent limit p_limit;
end
$$;
