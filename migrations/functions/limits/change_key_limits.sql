-- The next page of keys of a task whose limits change, see limit_changes: they get this capacity (null: no limit any more). Never
-- waits, and holds what it changes for some 50 ms: a key whose slots are just taken or freed is passed over, and a later pass
-- changes it. What runs above a lowered limit drains, and lanes that waited for a raised one open. The caller is the only one who
-- changes limits, see hold_limits. Returns how many have changed.
create function longshore.change_key_limits(p_task text, p_capacity int) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- A page of limits and their slot groups, each by its key, however many there are.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  c_page constant int := 500;
  v_until timestamptz := clock_timestamp() + interval '50 milliseconds';
  v_change longshore.limit_changes;
  v_keys text[];
  -- Those that have another capacity, and how many of their slot groups are held here.
  v_ids int[];
  v_held int[];
  v_last text;
  v_limit record;
  v_unused int[];
  v_eras int[];
  v_wanted int;
  v_changed int := 0;
begin
  select * into v_change from longshore.limit_changes c where c.task = p_task for update;
  if not found then
    return 0;
  end if;
  select array_agg(k.key order by k.key), coalesce(array_agg(k.id) filter (where k.capacity is distinct from p_capacity), '{}')
  into v_keys, v_ids
  from (
    select k.id, k.key, k.capacity from longshore.limits k
    where k.task = p_task and k.key > v_change.done_to order by k.key limit c_page
  ) k;
  v_last := case when cardinality(v_keys) = c_page then v_keys[c_page] end;
  v_wanted := cardinality(v_ids);

  select coalesce(array_agg(h.id), '{}'), array_agg(h.groups) into v_ids, v_held
  from (
    select k.id, count(g.number) as groups
    from (select k.id from unnest(v_ids) as k(id) order by k.id) k
    left join lateral (
      select g.number from longshore.slot_groups g where g.limit_id = k.id
      order by g.number
      /* guard: group-locks */ for update skip locked /* end group-locks */
    ) g on true
    group by k.id
  ) h;
  /* point: held */
  -- A later statement: it sees what the last holder of each group has done.
  v_ids := array(
    select l.id
    from unnest(v_ids, v_held) as h(id, groups)
    cross join lateral (
      select k.id from longshore.limits k where k.id = h.id offset 0 for no key update skip locked
    ) l
    where /* guard: all-groups */ h.groups = (select count(*) from longshore.slot_groups g where g.limit_id = h.id) /* end all-groups */
    order by l.id);

  if p_capacity is null then
    -- What holds slots gives them back as it ends.
    update longshore.limits k set capacity = null where k.id = any (v_ids);
    -- Only where slots are used can a job wait for one.
    perform longshore.reopen(array(
      select c.id from unnest(v_ids) as c(id)
      where exists (select from longshore.slot_groups g where g.limit_id = c.id and g.used > 0 offset 0)));
    perform longshore.note_changes(p_lanes => array(
      select l.id from unnest(v_ids) as c(id)
      cross join lateral (select k.key from longshore.limits k where k.id = c.id offset 0) k
      cross join lateral (
        select l.id from longshore.lanes l
        where l.task = p_task and l.concurrency_key = k.key and l.concurrency_key <> '' offset 0) l));
    v_changed := cardinality(v_ids);
  else
    select coalesce(array_agg(u.id) filter (where u.is_unused), '{}'), array_agg(u.era) filter (where u.is_unused) into v_unused, v_eras
    from (
      select c.id, (select g.era from longshore.slot_groups g where g.limit_id = c.id order by g.era desc limit 1) as era, not exists (
        select from longshore.slot_groups g where g.limit_id = c.id and g.used > 0 offset 0) as is_unused
      from unnest(v_ids) as c(id)
    ) u;
    -- Those in use one by one, in the order of their keys, as far as the time goes.
    for v_limit in
      select k.key from unnest(v_ids) as c(id)
      cross join lateral (select k.key from longshore.limits k where k.id = c.id offset 0) k
      where c.id <> all (v_unused)
      order by k.key
    loop
      if clock_timestamp() > v_until and v_changed > 0 then
        -- The next page begins here.
        v_last := (select max(k.key) from unnest(v_keys) as k(key) where k.key < v_limit.key);
        exit;
      end if;
      perform longshore.set_limit(p_task, v_limit.key, p_capacity);
      v_changed := v_changed + 1;
    end loop;
    delete from longshore.slot_groups g where g.limit_id = any (v_unused);
    insert into longshore.slot_groups (limit_id, era, number, capacity)
    select c.id, coalesce(c.era, 0), s.number, s.capacity from unnest(v_unused, v_eras) as c(id, era), longshore.spread_slots(p_capacity) s;
    update longshore.limits k set capacity = p_capacity where k.id = any (v_unused);
    perform longshore.note_changes(p_limits => v_unused);
    v_changed := v_changed + cardinality(v_unused);
  end if;

  v_change.passed_over := v_change.passed_over + v_wanted - cardinality(v_ids);
  if v_last is not null then
    update longshore.limit_changes c set done_to = v_last, passed_over = v_change.passed_over where c.task = p_task;
  elsif v_change.passed_over > 0 then
    -- Once more for those.
    update longshore.limit_changes c set done_to = '', passed_over = 0 where c.task = p_task;
  else
    delete from longshore.limit_changes c where c.task = p_task;
  end if;
  return v_changed;
end
$$;
