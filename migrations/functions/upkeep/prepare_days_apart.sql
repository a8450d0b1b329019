-- A step of making partitions beside a default partition with many rows: the upkeep has failed for weeks. Postgres would read all of it for each
-- partition that is attached, while all others wait. So its rows stay there until their days are over, and partitions are made only for days that it has
-- no rows of: a constraint, checked without a lock that stops others, proves that. It refuses only days that no job gets within a week, and
-- goes with the last of these steps; each leader's first step goes on with it.
-- days: those that can be attached now.
create function longshore.prepare_days_apart(
  p_table text, p_days date[], p_safe_from date, p_wait_ms int, out is_done boolean, out held_by text, out days date[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_default text := p_table || '_default';
  v_key text := replace(pg_get_partkeydef(to_regclass('longshore.' || p_table)), 'RANGE ', '');
  v_apart record;
  v_used date[];
  v_first date;
  v_end date;
begin
  is_done := false;
  days := '{}';
  select * into v_apart from longshore.days_apart(p_table);
  if v_apart.name is null then
    p_days := array(select d.day from unnest(p_days) as d(day) where d.day >= p_safe_from order by d.day);
    if p_days <> '{}' then
      execute format('select array(select distinct %1$s from longshore.%2$I where %1$s >= $1)', v_key, v_default) into v_used using p_safe_from;
      select min(d.day) into v_first from unnest(p_days) as d(day) where d.day <> all (v_used);
    end if;
    if v_first is null then
      is_done := true;
      return;
    end if;
    select coalesce(min(u.day), date '9999-12-31') into v_end from unnest(v_used) as u(day) where u.day > v_first;
  elsif not v_apart.is_valid then
    begin
      perform set_config('lock_timeout', p_wait_ms || 'ms', true);
      execute format('alter table longshore.%I validate constraint %I', v_default, v_apart.name);
    exception when check_violation then
      -- A row came before it.
      perform longshore.drop_days_apart(p_table);
    end;
    return;
  end if;
  held_by := longshore.long_holder(array[v_default], p_wait_ms);
  if held_by is not null then
    return;
  end if;
  perform set_config('lock_timeout', p_wait_ms || 'ms', true);
  if v_apart.name is null then
    execute format('alter table longshore.%I add constraint %I check (%3$s < %4$L::date or %3$s >= %5$L::date) not valid',
      v_default, 'apart_' || to_char(v_first, 'YYYYMMDD') || '_' || to_char(v_end, 'YYYYMMDD'),
      v_key, to_char(v_first, 'YYYY-MM-DD'), to_char(v_end, 'YYYY-MM-DD'));
  else
    days := array(select d.day from unnest(p_days) as d(day) where d.day >= v_apart.first_day and d.day < v_apart.end_day order by d.day);
    if days = '{}' then
      perform longshore.drop_days_apart(p_table);
    end if;
  end if;
  perform set_config('synchronous_commit', 'off', true);
end
$$;
