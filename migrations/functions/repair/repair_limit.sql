-- Make the limit of a task (key '') or of one of its keys again from what the task declares and from what runs: its slot groups, what
-- is used of them, and whether it is closed. Answers what was done.
--
-- One change of limits at a time, in the usual lock order: jobs, slot groups, limits (see hold_limits). A claim locks the
-- groups that it takes slots of until its commit, and a transaction that ends a run frees its slots last. So the slots in
-- use can be counted under the locks.
-- public: owner
create function longshore.repair_limit(p_task text, p_key text, out is_done boolean, out said text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '1s'
as $$
declare
  v_limit longshore.limits;
  v_capacity int;
  v_lanes int[];
  v_groups int;
  v_era int;
begin
  perform longshore.need_read_committed('repair a limit');
  perform pg_advisory_xact_lock(hashtext('longshore.limits'), 0);
  is_done := true;
  v_lanes := array(
    select l.id from longshore.lanes l where l.task = p_task and (p_key = '' or l.concurrency_key = p_key));
  select case when p_key = '' then t.concurrency else t.concurrency_per_key end into v_capacity
  from longshore.tasks t where t.name = p_task;
  insert into longshore.limits (task, key, capacity) values (p_task, p_key, v_capacity) on conflict do nothing;
  select * into v_limit from longshore.limits k where k.task = p_task and k.key = p_key;
  if not exists (select from longshore.tasks t where t.name = p_task) then
    v_capacity := v_limit.capacity;
  end if;
  /* point: limit-read */
  v_groups := (select count(*) from longshore.spread_slots(v_capacity));

  -- What runs under the limit without a slot is given one, wherever that is.
  perform from longshore.jobs j
  where j.state = 'running' and j.lane = any (v_lanes) and v_capacity is not null
    and case when p_key = '' then j.slot is null else j.key_slot is null end
  order by j.id for no key update;
  /* guard: slot-locks */ perform from longshore.slot_groups g
  where g.limit_id = v_limit.id order by g.number for update; /* end slot-locks */
  perform from longshore.limits k where k.id = v_limit.id for no key update;
  v_era := coalesce((select max(g.era) from longshore.slot_groups g where g.limit_id = v_limit.id), 0);
  with bare as (
    select j.id, ((row_number() over (order by j.id) - 1) % v_groups)::smallint as number from longshore.jobs j
    where j.state = 'running' and j.lane = any (v_lanes) and v_capacity is not null
      and case when p_key = '' then j.slot is null else j.key_slot is null end
  )
  update longshore.jobs j
  set slot = case when p_key = '' then b.number else j.slot end,
    key_slot = case when p_key = '' then j.key_slot else b.number end
  from bare b where j.id = b.id;

  with counted as (
    select case when p_key = '' then j.slot else j.key_slot end as number, count(*)::int as used
    from longshore.jobs j
    where j.lane = any (v_lanes) and case when p_key = '' then j.slot else j.key_slot end is not null group by 1
  ), wanted as (
    select number, coalesce(s.capacity, 0) as capacity, coalesce(c.used, 0) as used
    from longshore.spread_slots(v_capacity) s full join counted c using (number)
  ), gone as (
    delete from longshore.slot_groups g
    where g.limit_id = v_limit.id and (g.era <> v_era or not exists (select from wanted w where w.number = g.number))
  )
  insert into longshore.slot_groups as g (limit_id, era, number, capacity, used, is_draining)
  select v_limit.id, v_era, w.number, w.capacity, w.used, bool_or(w.used > w.capacity) over () from wanted w
  on conflict (limit_id, era, number) do update
  set capacity = excluded.capacity, used = excluded.used, is_draining = excluded.is_draining;
  update longshore.limits k set capacity = v_capacity where k.id = v_limit.id;
  perform longshore.reopen(array[v_limit.id]);
  perform longshore.note_changes(p_limits => array[v_limit.id], p_lanes => v_lanes);
  select format('limit of task %s, key %L: %s of %s slots are used', p_task, p_key, coalesce(sum(g.used), 0),
    coalesce(v_capacity::text, 'any')) into said
  from longshore.slot_groups g where g.limit_id = v_limit.id;
end
$$;
