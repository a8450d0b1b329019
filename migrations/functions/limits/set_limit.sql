-- Give a task, or one of its keys, another capacity (null: no limit any more). The caller holds the limit and its slot groups
-- and, where there was no limit before, what runs, which is counted here; see hold_limits.
create function longshore.set_limit(p_task text, p_key text, p_capacity int) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in hold_limits.
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  v_limit longshore.limits;
  v_era int;
  v_groups int := (select count(*) from longshore.spread_slots(p_capacity));
  v_per_group int := (select max(s.capacity) from longshore.spread_slots(p_capacity) s);
  v_lanes int[] := case when p_key = '' then array(select l.id from longshore.lanes l where l.task = p_task)
    else array(
      select l.id from longshore.lanes l
      where l.task = p_task and l.concurrency_key = p_key and l.concurrency_key <> '') end;
begin
  select * into v_limit from longshore.limits k where k.task = p_task and k.key = p_key;
  if p_capacity is null then
    -- What holds slots gives them back as it ends.
    update longshore.limits k set capacity = null where k.id = v_limit.id;
    perform longshore.reopen(array[v_limit.id]);
    perform longshore.note_changes(p_lanes => v_lanes);
    return;
  end if;

  v_era := coalesce((select max(g.era) from longshore.slot_groups g where g.limit_id = v_limit.id), 0);
  if v_limit.capacity is null then
    if v_limit.id is null then
      insert into longshore.limits (task, key, capacity) values (p_task, p_key, p_capacity) returning * into v_limit;
    end if;
    delete from longshore.slot_groups g where g.limit_id = v_limit.id;
    with running as materialized (
      select j.ctid, row_number() over (order by j.id) - 1 as no from longshore.workers w
      cross join lateral (
        select j.ctid, j.id, j.lane from longshore.jobs j where j.worker_id = w.id and j.state = 'running' offset 0
      ) j
      where exists (
        select from longshore.lanes l
        where l.id = j.lane and l.task = p_task and (p_key = '' or l.concurrency_key = p_key) offset 0)
    ), holding as (
      select r.ctid, (case when r.no < p_capacity then r.no / v_per_group else r.no % v_groups end)::smallint as number
      from running r
    ), counted as (
      update longshore.jobs j
      set slot = case when p_key = '' then h.number else j.slot end,
        key_slot = case when p_key = '' then j.key_slot else h.number end
      from holding h where j.ctid = h.ctid
    )
    insert into longshore.slot_groups (limit_id, era, number, capacity, used, is_draining)
    select v_limit.id, v_era, s.number, s.capacity, /* guard: count-running */ (select count(*) from holding h where h.number = s.number) /* end count-running */,
      (select count(*) from holding) > p_capacity
    from longshore.spread_slots(p_capacity) s;
  else
    update longshore.slot_groups g set capacity = 0, is_draining = true
    where g.limit_id = v_limit.id and g.number >= v_groups;
    insert into longshore.slot_groups (limit_id, era, number, capacity, is_draining)
    select v_limit.id, v_era, s.number, s.capacity, true from longshore.spread_slots(p_capacity) s
    on conflict (limit_id, era, number) do update set capacity = excluded.capacity, is_draining = true;
    delete from longshore.slot_groups g where g.limit_id = v_limit.id and g.capacity = 0 and g.used = 0;
    update longshore.slot_groups g set is_draining = false
    where g.limit_id = v_limit.id and not exists (
      select from longshore.slot_groups o where o.limit_id = v_limit.id and o.used > o.capacity
    );
  end if;
  update longshore.limits k set capacity = p_capacity where k.id = v_limit.id;
  perform longshore.reopen(array[v_limit.id]);
  if v_limit.capacity is null then
    perform longshore.note_changes(p_lanes => v_lanes);
  else
    perform longshore.note_changes(p_limits => array[v_limit.id]);
  end if;
end
$$;
