-- Make the partitions of finished_jobs for today and the days ahead. Attaching locks far less than creating a
-- partition in place; rows that had to go to the default partition meanwhile are moved. Returns how many were made.
create function longshore.prepare_history(p_days_ahead int) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_day date;
  v_name text;
  v_made int := 0;
begin
  for v_day in
    select (now() at time zone 'utc')::date + n from generate_series(0, p_days_ahead) n
  loop
    v_name := 'finished_jobs_' || to_char(v_day, 'YYYYMMDD');
    continue when to_regclass('longshore.' || v_name) is not null;
    -- Nothing may slip into the default partition between the move and the attach.
    if v_made = 0 then
      lock table longshore.finished_jobs_default in access exclusive mode;
    end if;
    execute format('create table longshore.%I (like longshore.finished_jobs including all)', v_name);
    execute format(
      'with moved as (delete from longshore.finished_jobs_default where day = %L returning *)
       insert into longshore.%I select * from moved', v_day, v_name);
    execute format(
      'alter table longshore.finished_jobs attach partition longshore.%I for values from (%L) to (%L)',
      v_name, v_day, v_day + 1);
    v_made := v_made + 1;
  end loop;
  return v_made;
end
$$;
