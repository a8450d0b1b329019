-- Make partitions of a table, one for each of these days, where they are missing. Attaching locks far less than creating a
-- partition in place; rows that had to go to the default partition meanwhile are moved. Returns how many were made.
create function longshore.prepare_days(p_table text, p_days date[], p_fillfactor int default 100) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_key text := replace(pg_get_partkeydef(to_regclass('longshore.' || p_table)), 'RANGE ', '');
  v_day date;
  v_name text;
  v_made int := 0;
begin
  foreach v_day in array p_days loop
    v_name := p_table || '_' || to_char(v_day, 'YYYYMMDD');
    continue when to_regclass('longshore.' || v_name) is not null;
    -- Nothing may slip into the default partition between the move and the attach.
    if v_made = 0 then
      execute format('lock table longshore.%I in access exclusive mode', p_table || '_default');
    end if;
    execute format('create table longshore.%I (like longshore.%I including all) with (fillfactor = %s)',
      v_name, p_table, p_fillfactor);
    execute format(
      'with moved as (delete from longshore.%I where %s = %L returning *)
       insert into longshore.%I select * from moved', p_table || '_default', v_key, v_day, v_name);
    execute format(
      'alter table longshore.%I attach partition longshore.%I for values from (%L) to (%L)',
      p_table, v_name, v_day, v_day + 1);
    v_made := v_made + 1;
  end loop;
  return v_made;
end
$$;
