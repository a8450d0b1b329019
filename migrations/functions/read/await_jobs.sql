-- The caller waits for these jobs to end, each for so many milliseconds: ending one tells this waiter. p_wants_logs: also
-- whenever there is more of its log. A role may have as many waits as the settings say.
-- public: producer
create function longshore.await_jobs(p_waiter text, p_ids uuid[], p_ms bigint[], p_wants_logs boolean) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_role oid := longshore.acting_role();
  v_most int;
begin
  if cardinality(p_ids) > 10000 or cardinality(p_ms) is distinct from cardinality(p_ids) then
    raise exception 'longshore: cannot wait for % jobs with % times in one call', cardinality(p_ids), cardinality(p_ms)
      using errcode = 'LS008', hint = 'Give a time for each, and at most 10000 jobs a call.';
  elsif exists (select from unnest(p_ms) as w(ms) where w.ms is null or w.ms not between 0 and 2764800000) then
    raise exception 'longshore: a wait must be from 0 ms to 32 days long' using errcode = 'LS008';
  end if;
  -- To count costs as much as there are: on average one row of a thousand does.
  if random() * 1000 < cardinality(p_ids) then
    select s.most_waits into v_most from longshore.settings s;
    if cardinality(p_ids) + (
      select count(*) from (select from longshore.awaited a where a.asked_by = v_role limit v_most) a) > v_most
    then
      raise exception 'longshore: role % waits for % jobs, and may not wait for more', v_role::regrole, v_most
        using errcode = 'LS008', hint = 'Wait for a group instead of its jobs, or raise most_waits in the settings.';
    end if;
  end if;
  insert into longshore.awaited (job_id, waiter, expires_at, wants_logs)
  select w.id, p_waiter, now() + w.ms * interval '1 millisecond', p_wants_logs
  from unnest(p_ids, p_ms) as w(id, ms)
  -- Jobs of other roles are skipped, as if there were no such job; a job that is not known yet may come.
  where longshore.is_own(v_role, coalesce(
    (select j.enqueued_by from longshore.jobs j where j.id = w.id),
    (select f.enqueued_by from longshore.finished_jobs f where f.id = w.id limit 1),
    (select g.enqueued_by from longshore.groups g where g.id = w.id), v_role))
  on conflict (job_id, waiter) do update set expires_at = greatest(awaited.expires_at, excluded.expires_at)
  where awaited.asked_by = excluded.asked_by;
end
$$;
