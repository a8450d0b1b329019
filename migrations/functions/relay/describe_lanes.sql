-- What Redis must know of these lanes: which workers may serve them (queue, task, tag, constraint tag), the same lane without a key,
-- and their limits, with how many slots of each are free. Limits of keys are made where they are missing.
-- public: relay
create function longshore.describe_lanes(p_lanes int[]) returns table (
  lane int, queue text, kind int, task text, tag text, constraint_tag text, has_keys boolean,
  limit_id int, free bigint, key_limit int, key_free bigint
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '1s'
as $$
#variable_conflict use_column
begin
  -- A claim makes them where this cannot, and they are asked for again.
  perform longshore.make_key_limits(p_lanes);
  return query
  select l.id, l.queue, coalesce(l.parent, l.id), l.task, l.tag, l.constraint_tag, t.concurrency_per_key is not null,
    k.id, greatest(0, k.capacity - (select coalesce(sum(g.used), 0) from longshore.slot_groups g where g.limit_id = k.id
      and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = k.id order by e.era desc limit 1))),
    o.id, greatest(0, o.capacity - (select coalesce(sum(g.used), 0) from longshore.slot_groups g where g.limit_id = o.id
      and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = o.id order by e.era desc limit 1)))
  from longshore.lanes l
  left join longshore.tasks t on t.name = l.task
  left join longshore.limits k on k.task = l.task and k.key = '' and k.capacity is not null
  left join longshore.limits o on o.task = l.task and o.key = l.concurrency_key and o.key <> '' and o.capacity is not null
  where l.id = any (p_lanes)
  order by l.id;
end
$$;
