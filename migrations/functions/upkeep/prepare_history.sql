-- Make the partitions of finished_jobs for jobs that end today or within p_days_ahead days, with the retention of the settings or a
-- shorter one, see prepare_days. With p_wait_ms to be called until is_done.
-- public: worker, relay
create function longshore.prepare_history(
  p_days_ahead int default 14, p_holder text default null, p_secret bytea default null, p_wait_ms int default null,
  out is_done boolean, out held_by text
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_ends date[];
  v_safe_from date;
begin
  perform longshore.need_leader(p_holder, p_secret);
  if p_wait_ms not between 1 and 1000 then
    raise exception 'longshore: a wait of % ms for a lock that stops others is refused: 1 to 1000 are possible', p_wait_ms
      using errcode = 'invalid_parameter_value';
  end if;
  v_ends := longshore.days_ahead(p_days_ahead);
  select longshore.kept_until(v_ends[1] + 7, s.retention_days) + 1 into v_safe_from from longshore.settings s;
  select p.is_done, p.held_by into is_done, held_by
  from longshore.prepare_days('finished_jobs', array(
    select distinct longshore.kept_until(e.day, n) as day
    from longshore.settings s, generate_series(1, s.retention_days) n, unnest(v_ends) as e(day)
    order by day), v_safe_from, p_wait_ms => p_wait_ms) p;
end
$$;
