-- The constraint by which prepare_days_apart keeps days out of a default partition, from first_day until before end_day, if there is one.
create function longshore.days_apart(p_table text) returns table (name text, first_day date, end_day date, is_valid boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select c.conname::text, to_date(split_part(c.conname, '_', 2), 'YYYYMMDD'), to_date(split_part(c.conname, '_', 3), 'YYYYMMDD'), c.convalidated
  from pg_constraint c
  where c.conrelid = to_regclass('longshore.' || p_table || '_default') and c.conname ~ '^apart_[0-9]{8}_[0-9]{8}$'
$$;
