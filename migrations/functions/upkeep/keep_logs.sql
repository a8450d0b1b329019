-- Make the partitions of logs and progress for today and the days ahead, see prepare_days, and let go those that lie wholly before the last p_days
-- days, see forget_days. Apart from the history: a transaction that holds these tables must not hold that up. With p_wait_ms a step, to be called
-- until is_done. Without it partitions are made, all at once, and none is let go.
-- public: owner
create function longshore.keep_logs(
  p_days int, p_days_ahead int default 14, p_wait_ms int default null,
  out is_done boolean, out held_by text, out behind_days int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_today date := (now() at time zone 'utc')::date;
  v_table text;
  v_step record;
begin
  if p_days < 1 then
    raise exception 'longshore: the logs of % days cannot be kept: today''s are in use', p_days
      using errcode = 'invalid_parameter_value';
  end if;
  is_done := true;
  behind_days := 0;
  foreach v_table in array '{job_logs,job_progress}'::text[] loop
    select * into v_step from longshore.prepare_days(v_table, longshore.days_ahead(p_days_ahead), v_today + 7,
      case when v_table = 'job_progress' then 50 else 100 end, p_wait_ms);
    held_by := coalesce(held_by, v_step.held_by);
    is_done := is_done and v_step.is_done;
    -- A step at a time.
    exit when not v_step.is_done and v_step.held_by is null;
    continue when p_wait_ms is null;
    select * into v_step from longshore.forget_days(v_table, v_today - p_days, p_wait_ms);
    held_by := coalesce(held_by, v_step.held_by);
    is_done := is_done and v_step.is_done;
    behind_days := greatest(behind_days, v_step.behind_days);
    exit when not v_step.is_done and v_step.held_by is null;
  end loop;
  -- What is held is told when there is nothing else to do.
  if not v_step.is_done and v_step.held_by is null then
    held_by := null;
  end if;
end
$$;
