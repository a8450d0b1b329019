-- The advisory locks of this installation that a session holds or waits for, as far as they stop others. A worker's lock, taken
-- exclusively, stops its claims; taken at all, it stops the rescue of a dead worker. `limits` stops new workers and keys; `lanes` stops
-- new lanes. Longshore itself takes them for moments. As the owner, who may see since when a session of another user has them.
-- public: worker, relay, reader
create function longshore.locks_held() returns table (
  lock text, worker_id int, stops text, pid int, transaction text, login name, application text, since timestamptz
)
language sql stable
security definer set search_path = pg_catalog, pg_temp
as $$
  select k.lock, case when k.lock = 'worker' then l.objid::bigint::int end,
    case when k.lock = 'worker' and l.mode = 'ExclusiveLock' then 'claims'
      when k.lock = 'worker' then 'the rescue of its jobs'
      when k.lock = 'limits' then 'new workers, limits and concurrency keys'
      else 'enqueues of new kinds of jobs'
    end,
    l.pid, l.virtualtransaction, a.usename, a.application_name, coalesce(a.xact_start, a.state_change)
  from pg_locks l
  join (values
    ('worker', hashtext('longshore.worker')::bigint & 4294967295, 2),
    ('limits', hashtext('longshore.limits')::bigint & 4294967295, 2),
    ('lanes', hashtext('longshore.make_lane')::bigint & 4294967295, 1)
  ) as k(lock, key, part)
    on l.objsubid = k.part and k.key = case when k.part = 2 then l.classid::bigint else l.objid::bigint end
  left join pg_stat_activity a on a.pid = l.pid
  where l.locktype = 'advisory' and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and (k.lock <> 'worker' or l.mode = 'ExclusiveLock' or exists (
      select from longshore.workers w
      where w.id = l.objid::bigint::int and w.expires_at < clock_timestamp() - interval '10 seconds'))
    and (k.part = 2 or l.classid::bigint = case when hashtext('longshore.make_lane') < 0 then 4294967295 else 0 end)
  order by 1, 2, 4
$$;
