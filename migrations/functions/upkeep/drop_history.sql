-- Drop the partitions of finished_jobs that lie wholly before the last p_days days, and what old rows the default
-- partition holds; with them the edges of their jobs, and groups that ended before. Groups that have not ended remember how many. Returns how many partitions were dropped.
create function longshore.drop_history(p_days int) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_first date;
  v_name text;
  v_dropped int := 0;
begin
  if p_days < 1 then
    raise exception 'longshore: the history of % days cannot be kept: today''s is in use', p_days
      using errcode = 'invalid_parameter_value';
  end if;
  v_first := (now() at time zone 'utc')::date - p_days;
  for v_name in
    select c.relname from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = to_regclass('longshore.finished_jobs')
      and c.relname ~ '^finished_jobs_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') < v_first
    order by c.relname
  loop
    perform longshore.forget_links(v_name, v_first);
    execute format('drop table longshore.%I', v_name);
    v_dropped := v_dropped + 1;
  end loop;
  perform longshore.forget_links('finished_jobs_default', v_first);
  delete from longshore.finished_jobs_default f where f.day < v_first;
  delete from longshore.groups g where g.finished_at < v_first::timestamp at time zone 'utc';
  return v_dropped;
end
$$;
