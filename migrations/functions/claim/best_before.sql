-- The best score below p_before of a ready job that this worker may claim now; null: there is none. Takes no locks. A worker whose claims begin
-- at a score looks here for jobs before it (see the worker's claim cursor). Beside a transaction that is held open that takes long: it reads past
-- everything that was claimed meanwhile, so that no claim has to.
-- public: worker
create function longshore.best_before(p_worker int, p_before bigint, p_secret bytea default null) returns bigint
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_bitmapscan = off
set enable_seqscan = off
as $$
begin
  p_worker := longshore.need_worker(p_worker, p_secret);
  return (
    select min(best.score)
    from longshore.worker_lanes l
    left join longshore.limits k on k.task = l.task and k.key = '' and k.capacity is not null
    cross join lateral (
      (select j.score from longshore.jobs j
        where j.lane = l.lane and j.state = 'ready' and j.score < p_before order by j.score, j.id limit 1)
      union all
      -- Lanes with keys below it.
      (select h.score from longshore.lane_heads h
        where h.parent = l.lane and h.closed_by is null and h.score < p_before order by h.score, h.job_id limit 1)
    ) best
    where l.worker_id = p_worker and l.dead_at is null and l.concurrency_key = ''
      -- A slot that is freed rings, and the claim that frees it begins at the start.
      and k.is_full is not true);
end
$$;
