-- Jobs run under a worker that has no row, so the upkeep would not rescue them. It gets a row, as a dead worker, and its jobs are
-- rescued by the upkeep, or here at once. If it lives after all, it learns that its lease is gone.
-- public: owner
create function longshore.repair_lease(p_worker int, out is_done boolean, out said text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
declare
  v_rescued record;
begin
  insert into longshore.workers (id, name, queues, tasks, tags, constraint_tags, expires_at, dead_at)
  overriding system value
  select p_worker, 'without a row', '{?}', '{?}', '{?}', '{c:}', now(), now()
  where exists (select from longshore.jobs j where j.worker_id = p_worker and j.state = 'running' offset 0)
  on conflict do nothing;
  is_done := found;
  if not is_done then
    said := 'nothing runs under it any more, or it has its row again';
    return;
  end if;
  select r.rescued, r.ended into v_rescued from longshore.rescue(0, 10000) r where r.worker_id = p_worker;
  said := format('what worker %s ran is rescued: %s run again, %s have ended', p_worker,
    coalesce(v_rescued.rescued, 0), coalesce(v_rescued.ended, 0));
end
$$;
