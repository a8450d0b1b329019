-- Drop the partitions of finished_jobs whose last day has passed, and such rows of the default partition; with them the edges of their
-- jobs. Groups that have not ended remember how many there were; groups that ended go when a job that ended with them would.
-- Returns how many partitions were dropped.
create function longshore.drop_history() returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_today date := (now() at time zone 'utc')::date;
  v_name text;
  v_dropped int := 0;
begin
  for v_name in
    select c.relname from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = to_regclass('longshore.finished_jobs')
      and c.relname ~ '^finished_jobs_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today
    order by c.relname
  loop
    perform longshore.forget_links(v_name, v_today);
    execute format('drop table longshore.%I', v_name);
    v_dropped := v_dropped + 1;
  end loop;
  perform longshore.forget_links('finished_jobs_default', v_today);
  delete from longshore.finished_jobs_default f where f.keep_until < v_today;
  delete from longshore.groups g using longshore.settings s
  -- The first condition is for the index.
  where g.finished_at < (v_today - s.retention_days)::timestamp at time zone 'utc'
    and longshore.kept_until((g.finished_at at time zone 'utc')::date, s.retention_days) < v_today;
  return v_dropped;
end
$$;
