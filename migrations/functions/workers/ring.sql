-- Ring at most `p_jobs` of the workers that wait for jobs of this lane. Workers that poll by themselves are not
-- rung, so under load no commit carries a notification. Picked at random: an order by idle time would need a
-- write per wake-up. A worker whose lease has run out is passed over. p_score: the best score of those jobs, for a worker that does not
-- read its lanes from the start (see the worker's claim cursor); null: any.
create function longshore.ring(p_lane int, p_jobs bigint, p_score bigint default null) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('longshore.worker_' || listener.id, coalesce(p_score::text, ''))
  from (
    select w.worker_id as id
    from longshore.worker_lanes w
    where w.lane = p_lane and w.listening and w.expires_at > now()
    order by random()
    /* guard: one-for-each-job */ limit p_jobs /* end one-for-each-job */
  ) listener;
end
$$;
