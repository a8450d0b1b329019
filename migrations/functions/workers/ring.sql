-- Ring at most `p_jobs` of the workers that wait for jobs of this lane. Workers that poll by themselves are not
-- rung, so under load no commit carries a notification. Picked at random: an order by idle time would need a
-- write per wake-up. A worker whose lease has run out is passed over.
create function longshore.ring(p_lane int, p_jobs bigint) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('longshore.worker_' || listener.id, '')
  from (
    select w.id
    from longshore.workers w, longshore.lanes l
    where w.listening and w.expires_at > now()
      and l.id = p_lane
      and l.queue = any (w.queues) and l.task = any (w.tasks)
      and l.tag = any (w.tags) and l.constraint_tag = any (w.constraint_tags)
    order by random()
    limit p_jobs
  ) listener;
end
$$;
