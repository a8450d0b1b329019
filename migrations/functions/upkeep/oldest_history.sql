-- The first day of which the history may still hold jobs, by the day until which they are kept: today, or earlier where a partition could
-- not be dropped yet.
create function longshore.oldest_history() returns date
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return least(
    (now() at time zone 'utc')::date,
    (select min(to_date(right(c.relname, 8), 'YYYYMMDD')) from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = to_regclass('longshore.finished_jobs') and c.relname ~ '^finished_jobs_[0-9]{8}$'),
    (select min(f.keep_until) from longshore.finished_jobs_default f));
end
$$;
