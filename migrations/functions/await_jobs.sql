-- Somebody waits for these jobs to end, each for so many milliseconds: whoever ends one tells this waiter. p_wants_logs: also
-- whenever there is more of its log.
create function longshore.await_jobs(p_waiter text, p_ids uuid[], p_ms bigint[], p_wants_logs boolean) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_role oid := longshore.acting_role();
begin
  insert into longshore.awaited (job_id, waiter, expires_at, wants_logs)
  select w.id, p_waiter, now() + w.ms * interval '1 millisecond', p_wants_logs
  from unnest(p_ids, p_ms) as w(id, ms)
  -- What is another's is passed over, as if there were no such job; one that is not known yet may come.
  where longshore.is_own(v_role, coalesce(
    (select j.enqueued_by from longshore.jobs j where j.id = w.id),
    (select f.enqueued_by from longshore.finished_jobs f where f.id = w.id limit 1),
    (select g.enqueued_by from longshore.groups g where g.id = w.id), v_role))
  on conflict (job_id, waiter) do update set expires_at = greatest(awaited.expires_at, excluded.expires_at);
end
$$;
