-- One short step of letting go what the history need not keep any longer, see forget_days; first of groups that have ended, which go when a job
-- that ended with them would. To be called until is_done.
-- public: worker, relay
create function longshore.forget_history(
  p_holder text default null, p_secret bytea default null, p_wait_ms int default 10,
  out is_done boolean, out held_by text, out behind_days int
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  c_groups constant int := 1000;
  v_today date := (now() at time zone 'utc')::date;
  v_ended date;
begin
  perform longshore.need_leader(p_holder, p_secret);
  if p_wait_ms not between 1 and 1000 then
    raise exception 'longshore: a wait of % ms for a lock that stops others is refused: 1 to 1000 are possible', p_wait_ms
      using errcode = 'invalid_parameter_value';
  end if;
  -- The last day on which a job has ended that need not be kept: a longer retention is rounded up, by a year at most.
  select max(d.day)::date into v_ended
  from longshore.settings s, generate_series(v_today - s.retention_days - 367, v_today - s.retention_days - 1, interval '1 day') as d(day)
  where longshore.kept_until(d.day::date, s.retention_days) < v_today;
  delete from longshore.groups g where g.id = any (array(
    select o.id from longshore.groups o where o.finished_at < (v_ended + 1)::timestamp at time zone 'utc'
    order by o.finished_at limit c_groups for update skip locked));
  if found then
    is_done := false;
    behind_days := 0;
    return;
  end if;
  select f.is_done, f.held_by, f.behind_days into is_done, held_by, behind_days
  from longshore.forget_days('finished_jobs', v_today, p_wait_ms) f;
end
$$;
