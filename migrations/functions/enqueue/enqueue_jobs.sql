-- Enqueue many jobs in one statement, as insert_jobs says. For producers, and without what only groups need: a job joins a group through
-- add_to_group, which asks whose group it is.
-- public: producer
create function longshore.enqueue_jobs(
  p_shapes jsonb, p_ids uuid[], p_shape_nos int[], p_payloads text, p_checked boolean, p_hinted boolean default false,
  p_workflows text[] default null, p_halts boolean[] default null, p_traces text[] default null,
  p_whole boolean default false
) returns table (made uuid[], lanes int[], scores bigint[], is_ready boolean[])
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select i.* from longshore.insert_jobs(
    p_shapes, p_ids, p_shape_nos, p_payloads, p_checked, p_hinted, p_workflows, p_halts, p_traces => p_traces,
    p_whole => p_whole) i;
end
$$;
