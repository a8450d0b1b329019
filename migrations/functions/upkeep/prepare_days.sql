-- Make partitions of a table, one for each of these days, where they are missing. Attaching one locks the default partition, which settles write to
-- only where a partition is missing, but reads by id ask as well. Rows that had to go to the default partition meanwhile are moved, as long as it is small;
-- where it is large, see prepare_days_apart.
-- With p_wait_ms one partition a call, and only where the lock can be had in that time; held_by: who is in the way. Without it all at once.
-- p_safe_from: the first day that no job can get within a week.
create function longshore.prepare_days(
  p_table text, p_days date[], p_safe_from date, p_fillfactor int default 100, p_wait_ms int default null,
  out is_done boolean, out held_by text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  c_small constant int := 1048576;
  v_default text := p_table || '_default';
  v_key text := replace(pg_get_partkeydef(to_regclass('longshore.' || p_table)), 'RANGE ', '');
  v_days date[];
  v_day date;
  v_name text;
  v_is_large boolean := pg_relation_size(to_regclass('longshore.' || v_default)) > c_small;
begin
  is_done := true;
  v_days := array(
    select d.day from unnest(p_days) as d(day)
    where to_regclass('longshore.' || p_table || '_' || to_char(d.day, 'YYYYMMDD')) is null order by d.day);
  if v_is_large and p_wait_ms is not null then
    select a.is_done, a.held_by, a.days into is_done, held_by, v_days
    from longshore.prepare_days_apart(p_table, v_days, p_safe_from, p_wait_ms) a;
  elsif v_is_large then
    -- No constraint of prepare_days_apart may refuse a job now; partitions are left to the leader.
    perform longshore.drop_days_apart(p_table);
    return;
  elsif v_days <> '{}' or exists (select from longshore.days_apart(p_table)) then
    if p_wait_ms is not null then
      /* guard: no-long-wait */ held_by := longshore.long_holder(array[v_default], p_wait_ms); /* end no-long-wait */
      if held_by is not null then
        is_done := false;
        return;
      end if;
      perform set_config('lock_timeout', p_wait_ms || 'ms', true);
    end if;
    perform longshore.drop_days_apart(p_table);
  end if;
  if v_days = '{}' then
    return;
  end if;
  -- One process makes partitions of a table at a time.
  execute format('lock table only longshore.%I in share update exclusive mode', p_table);
  foreach v_day in array v_days loop
    v_name := p_table || '_' || to_char(v_day, 'YYYYMMDD');
    continue when to_regclass('longshore.' || v_name) is not null;
    execute format('create table longshore.%I (like longshore.%I including all) with (fillfactor = %s)',
      v_name, p_table, p_fillfactor);
    -- Nothing may slip into the default partition between the move and the attach.
    execute format('lock table longshore.%I in access exclusive mode', v_default);
    if not v_is_large then
      execute format(
        'with moved as (delete from longshore.%I where %s = %L::date returning *)
         insert into longshore.%I select * from moved', v_default, v_key, to_char(v_day, 'YYYY-MM-DD'), v_name);
    end if;
    execute format(
      'alter table longshore.%I attach partition longshore.%I for values from (%L::date) to (%L::date)',
      p_table, v_name, to_char(v_day, 'YYYY-MM-DD'), to_char(v_day + 1, 'YYYY-MM-DD'));
    if p_wait_ms is not null then
      perform set_config('synchronous_commit', 'off', true);
      is_done := false;
      return;
    end if;
  end loop;
exception when lock_not_available then
  if p_wait_ms is null then
    raise;
  end if;
  is_done := false;
  held_by := format('transactions that use %s follow each other closely', p_table);
end
$$;
