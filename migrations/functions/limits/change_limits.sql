-- The leader's part of changing limits: the next page of keys of one of the tasks whose limits are being changed, by any process.
-- `task` is null when there is none, or while limits are being set.
-- public: worker, relay
create function longshore.change_limits(
  p_holder text default null, p_secret bytea default null, out task text, out changed int, out is_done boolean
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '200ms'
as $$
begin
  perform longshore.need_leader(p_holder, p_secret);
  select c.task into task from longshore.limit_changes c order by c.task limit 1;
  if task is null then
    return;
  end if;
  begin
    perform pg_advisory_xact_lock(hashtext('longshore.limits'), 0);
  exception when lock_not_available then
    task := null;
    return;
  end;
  -- A statement of its own, after the lock: it may have been changed again.
  select longshore.change_key_limits(t.name, t.concurrency_per_key) into changed
  from longshore.tasks t where t.name = change_limits.task;
  if not found then
    delete from longshore.limit_changes c where c.task = change_limits.task;
  end if;
  is_done := not exists (select from longshore.limit_changes c where c.task = change_limits.task);
end
$$;
