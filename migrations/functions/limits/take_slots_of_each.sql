-- take_slots for many limits, in as many statements as for one: up to p_needs slots of each. Answers slot by slot, in the order
-- of the limits; `short`: those that gave less.
create function longshore.take_slots_of_each(
  p_limits int[], p_needs int[], out limits int[], out slots smallint[], out short int[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- A few slot groups of each limit, by their key, however many there are.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_ids int[];
  v_numbers smallint[];
  v_rows tid[];
  v_taken int[];
  v_rest record;
  v_more smallint[];
begin
  short := '{}';
  -- As many groups as are needed if those are empty.
  select coalesce(array_agg(t.id), '{}'), coalesce(array_agg(t.number), '{}'), coalesce(array_agg(t.row), '{}'),
    coalesce(array_agg(t.taken), '{}')
  into v_ids, v_numbers, v_rows, v_taken
  from (
    select h.id, h.number, h.row, least(h.free, h.need - h.before)::int as taken
    from (
      select n.id, n.need, g.number, g.row, g.free, sum(g.free) over (partition by n.id order by g.number) - g.free as before
      from unnest(p_limits, p_needs) as n(id, need)
      join longshore.limits k on k.id = n.id
      cross join lateral (
        select g.number, g.ctid as row, g.capacity - g.used as free from longshore.slot_groups g
        where g.limit_id = n.id
          and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = n.id order by e.era desc limit 1)
          and g.used < g.capacity and not g.is_draining /* point: reading */
        order by g.number
        limit ceil(n.need / ((k.capacity + 49) / 50)::numeric)
        /* guard: group-lock */ for update skip locked /* end group-lock */
      ) g
    ) h
    where h.before < h.need
  ) t;
  /* point: chosen */
  update longshore.slot_groups g set used = /* guard: count */ g.used + t.taken /* end count */
  from unnest(v_rows, v_taken) as t(row, taken) where g.ctid = t.row;
  if random() < 1 / 16.0 then
    insert into longshore.limit_uses (limits) values (p_limits);
  end if;
  select coalesce(array_agg(t.id order by t.id), '{}'), coalesce(array_agg(t.number order by t.id), '{}') into limits, slots
  from unnest(v_ids, v_numbers, v_taken) as t(id, number, taken), generate_series(1, t.taken);

  -- Where they were not, or where others hold them.
  for v_rest in
    select n.id, sum(n.need)::int as need
    from (
      select n.id, n.need from unnest(p_limits, p_needs) as n(id, need)
      union all
      select t.id, -t.taken from unnest(v_ids, v_taken) as t(id, taken)
    ) n
    group by 1 having sum(n.need) > 0 order by 1
  loop
    v_more := longshore.take_slots(v_rest.id, v_rest.need);
    limits := limits || array_fill(v_rest.id, array[cardinality(v_more)]);
    slots := slots || v_more;
    if cardinality(v_more) < v_rest.need then
      short := short || v_rest.id;
    end if;
  end loop;
end
$$;
