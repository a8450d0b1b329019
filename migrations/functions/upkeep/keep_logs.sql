-- Make the partitions of logs and progress for today and the days ahead, and drop those that lie wholly before the last p_days
-- days. Apart from the history: a transaction that holds these tables must not hold that up.
-- public: owner
create function longshore.keep_logs(p_days int, p_days_ahead int default 14) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_first date;
  v_name text;
begin
  if p_days < 1 then
    raise exception 'longshore: the logs of % days cannot be kept: today''s are in use', p_days
      using errcode = 'invalid_parameter_value';
  end if;
  v_first := (now() at time zone 'utc')::date - p_days;
  perform longshore.prepare_days('job_logs', longshore.days_ahead(p_days_ahead));
  perform longshore.prepare_days('job_progress', longshore.days_ahead(p_days_ahead), 50);
  for v_name in
    select c.relname from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent in (to_regclass('longshore.job_logs'), to_regclass('longshore.job_progress'))
      and c.relname ~ '^job_(logs|progress)_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') < v_first
    order by c.relname
  loop
    execute format('drop table longshore.%I', v_name);
  end loop;
  delete from longshore.job_logs_default l where l.day < v_first;
  delete from longshore.job_progress_default p where p.day < v_first;
end
$$;
