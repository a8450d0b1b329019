-- The limits of these tasks are about to change (to p_concurrency and p_per_key, one entry a task): hold what this will touch at
-- once, in the order in which everybody takes it: workers, jobs, slot groups, limits. That is the limit of each task, and where a
-- first limit is set what runs under it; limits that keys have already are changed in pages, see change_key_limits. One change at
-- a time. Gives up soon (lock_not_available: try again): what it holds while it waits for another transaction stops the
-- claims of workers.
create function longshore.hold_limits(p_tasks text[], p_concurrency int[], p_per_key int[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '200ms'
-- What runs is read by its workers, however many jobs there are.
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  v_first text[];
  v_keys text[];
begin
  perform pg_advisory_xact_lock(hashtext('longshore.limits'), 0);
  select array_agg(g.task) into v_first
  from unnest(p_tasks, p_concurrency, p_per_key) as g(task, concurrency, per_key)
  left join longshore.tasks t on t.name = g.task
  where (t.concurrency is null and g.concurrency is not null)
    or (t.concurrency_per_key is null and g.per_key is not null);
  if v_first is not null then
    -- What runs is going to be counted: no claim may be under way that does not know of the limit. Workers that register
    -- from now on wait for this transaction, see register_worker.
    perform /* guard: worker-locks */ pg_advisory_xact_lock(hashtext('longshore.worker'), w.id) /* end worker-locks */
    from (select w.id from longshore.workers w where w.tasks && v_first order by w.id) w;
    /* guard: running-locks */ perform
    from (
      select j.id from longshore.workers w
      cross join lateral (
        select j.id, j.lane from longshore.jobs j where j.worker_id = w.id and j.state = 'running' offset 0
      ) j
      where exists (select from longshore.lanes l where l.id = j.lane and l.task = any (v_first) offset 0)
      order by j.id offset 0
    ) r
    cross join lateral (select from longshore.jobs j where j.id = r.id offset 0 for update) j; /* end running-locks */
    v_keys := array(
      select distinct l.concurrency_key from longshore.workers w
      cross join lateral (select j.lane from longshore.jobs j where j.worker_id = w.id and j.state = 'running' offset 0) j
      cross join lateral (select l.task, l.concurrency_key from longshore.lanes l where l.id = j.lane offset 0) l
      where l.task = any (v_first) and l.concurrency_key <> '');
  end if;
  perform from longshore.slot_groups g
  where g.limit_id = any (array(
    select k.id from longshore.limits k where k.task = any (p_tasks) and k.key = ''
    union all
    select k.id from longshore.limits k where k.task = any (v_first) and k.key = any (v_keys)))
  order by g.limit_id, g.number
  for update;
  perform from longshore.limits k
  where k.task = any (p_tasks) and k.key = '' or k.task = any (v_first) and k.key = any (v_keys)
  order by k.id for no key update;
end
$$;
