-- Make the partitions of a table by day for today and the days ahead. Attaching locks far less than creating a
-- partition in place; rows that had to go to the default partition meanwhile are moved. Returns how many were made.
create function longshore.prepare_days(p_table text, p_days_ahead int, p_fillfactor int default 100) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_day date;
  v_name text;
  v_made int := 0;
begin
  if p_days_ahead > 366 then
    raise exception 'longshore: partitions for % days ahead are too many, at most 366 are possible', p_days_ahead
      using errcode = 'invalid_parameter_value';
  end if;
  for v_day in
    select (now() at time zone 'utc')::date + n from generate_series(0, p_days_ahead) n
  loop
    v_name := p_table || '_' || to_char(v_day, 'YYYYMMDD');
    continue when to_regclass('longshore.' || v_name) is not null;
    -- Nothing may slip into the default partition between the move and the attach.
    if v_made = 0 then
      execute format('lock table longshore.%I in access exclusive mode', p_table || '_default');
    end if;
    execute format('create table longshore.%I (like longshore.%I including all) with (fillfactor = %s)',
      v_name, p_table, p_fillfactor);
    execute format(
      'with moved as (delete from longshore.%I where day = %L returning *)
       insert into longshore.%I select * from moved', p_table || '_default', v_day, v_name);
    execute format(
      'alter table longshore.%I attach partition longshore.%I for values from (%L) to (%L)',
      p_table, v_name, v_day, v_day + 1);
    v_made := v_made + 1;
  end loop;
  return v_made;
end
$$;
