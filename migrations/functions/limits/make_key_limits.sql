-- See to it that the keys of these lanes have their limits, where their tasks declare one: made when a claim first meets a
-- key. False: somebody else is at it, or is just changing limits; look again.
create function longshore.make_key_limits(p_lanes int[]) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
  -- `offset 0`: one look by the key for each lane. Joined, on the statistics of an empty table, each would read all limits.
  if not exists (
    select from longshore.lanes l join longshore.tasks t on t.name = l.task
    where l.id = any (p_lanes) and l.concurrency_key <> '' and t.concurrency_per_key is not null and not exists (
      select from longshore.limits k where k.task = l.task and k.key = l.concurrency_key and k.capacity is not null offset 0)
  ) then
    return true;
  end if;
  if not pg_try_advisory_xact_lock_shared(hashtext('longshore.limits'), 0)
    /* guard: one-at-a-time */ or not pg_try_advisory_xact_lock(hashtext('longshore.limits'), 1) /* end one-at-a-time */
  then
    return false;
  end if;
  -- Nothing of them runs: the transaction that declared the limit counted what ran, and since then every claim takes slots. What is left of limits
  -- that were removed some time ago is not in use.
  delete from longshore.slot_groups g
  where g.limit_id = any (array(
    select k.id from longshore.lanes l
    cross join lateral (
      select k.id from longshore.limits k where k.task = l.task and k.key = l.concurrency_key and k.capacity is null offset 0
    ) k
    where l.id = any (p_lanes) and l.concurrency_key <> ''));
  with made as (
    insert into longshore.limits (task, key, capacity)
    select distinct l.task, l.concurrency_key, t.concurrency_per_key
    from longshore.lanes l join longshore.tasks t on t.name = l.task
    where l.id = any (p_lanes) and l.concurrency_key <> '' and t.concurrency_per_key is not null and not exists (
      select from longshore.limits k where k.task = l.task and k.key = l.concurrency_key and k.capacity is not null offset 0)
    on conflict (task, key) do update set capacity = excluded.capacity
    returning id, capacity
  )
  insert into longshore.slot_groups (limit_id, number, capacity)
  select m.id, s.number, s.capacity from made m cross join lateral longshore.spread_slots(m.capacity) s;
  return true;
end
$$;
