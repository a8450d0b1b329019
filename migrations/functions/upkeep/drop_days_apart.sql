-- The default partition takes every day again.
create function longshore.drop_days_apart(p_table text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text;
begin
  for v_name in select a.name from longshore.days_apart(p_table) a loop
    execute format('alter table longshore.%I drop constraint %I', p_table || '_default', v_name);
  end loop;
end
$$;
