-- The end of a round of forget_lanes: forget tasks that no lane and no worker names any more, with their limits. A task also stays for 30 days, or for
-- as long as the history if that is longer, after a process last registered it. Does nothing while tasks are registered or limits are changed;
-- the next round follows. Returns the tasks.
create function longshore.forget_names() returns text[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_before timestamptz := now() - (select greatest(30, s.retention_days) from longshore.settings s) * interval '1 day';
  v_tasks text[];
begin
  if not pg_try_advisory_xact_lock(hashtext('longshore.make_lane'))
    or not pg_try_advisory_xact_lock(hashtext('longshore.limits'), 0)
  then
    return '{}';
  end if;
  -- A later statement: it sees what was registered under the locks.
  v_tasks := array(
    select t.name from longshore.tasks t
    where /* guard: not-registered */ t.registered_at < v_before /* end not-registered */
      /* guard: no-lane */ and not exists (select from longshore.lanes l where l.task = t.name and l.concurrency_key = '' offset 0) /* end no-lane */
      /* guard: no-worker */ and not exists (select from longshore.workers w where t.name = any (w.tasks) offset 0) /* end no-worker */
      /* guard: no-slot-used */ and not exists (
        select from longshore.limits k join longshore.slot_groups g on g.limit_id = k.id where k.task = t.name and g.used > 0 offset 0) /* end no-slot-used */);
  delete from longshore.slot_groups g
  where g.limit_id = any (array(select k.id from longshore.limits k where k.task = any (v_tasks) and k.key = ''));
  delete from longshore.limits k where k.task = any (v_tasks) and k.key = '';
  delete from longshore.tasks t where t.name = any (v_tasks);
  -- Not `relayed`: while Redis may hold something of a queue, a relay has to know of it. The relay deletes the row, see note_ended.
  return v_tasks;
end
$$;
