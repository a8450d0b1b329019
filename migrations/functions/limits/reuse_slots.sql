-- Of the slots of runs that this transaction has ended (p_held_…, see settle), which can pass on to jobs of p_job_lanes that are to
-- start in it, and are locked: own_limits and own_slots, no more of a limit than such jobs need. No slot group is touched for them. The rest is
-- to be freed. The other arrays say which limits a lane is under.
create function longshore.reuse_slots(
  p_job_lanes int[], p_lanes int[], p_limits int[], p_key_limits int[],
  p_held_lanes int[], p_held_slots smallint[], p_held_key_slots smallint[],
  out own_limits int[], out own_slots smallint[], out rest_lanes int[], out rest_slots smallint[], out rest_key_slots smallint[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in assign_slots; and one row by its key.
set enable_nestloop = off
set enable_bitmapscan = off
as $$
begin
  with source as materialized (
    select s.lane, s.limit_id, s.key_limit, coalesce(s.limit_id, s.key_limit) as id
    from unnest(p_lanes, p_limits, p_key_limits) as s(lane, limit_id, key_limit)
    -- Not where jobs need two: a job that lacks the other would leave over a slot whose group this transaction does not hold, and it must not
    -- wait for a group when it has taken slots.
    where not exists (
      select from unnest(p_limits, p_key_limits) as b(limit_id, key_limit)
      where b.limit_id is not null and b.key_limit is not null)
  ), need as materialized (
    select s.id, count(*) as jobs from unnest(p_job_lanes) as j(lane) join source s on s.lane = j.lane group by 1
  ), held as materialized (
    select h.lane, h.slot, h.key_slot, s.id, row_number() over (partition by s.id) as no
    from unnest(p_held_lanes, p_held_slots, p_held_key_slots) as h(lane, slot, key_slot)
    left join source s on s.lane = h.lane
      -- Its limits may have changed since it took them. While a lowered one drains, nothing passes on.
      and (s.limit_id is null) = (h.slot is null) and (s.key_limit is null) = (h.key_slot is null)
      /* guard: draining */ and not (
        select g.is_draining from longshore.slot_groups g where g.limit_id = s.id
          and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = s.id order by e.era desc limit 1)
          and g.number = coalesce(h.slot, h.key_slot)) /* end draining */
  ), sorted as (
    select h.*, coalesce(h.no <= n.jobs, false) as is_own from held h left join need n on n.id = h.id
  )
  select coalesce(array_agg(h.id) filter (where h.is_own), '{}'),
    coalesce(array_agg(coalesce(h.slot, h.key_slot)) filter (where h.is_own), '{}'),
    array_agg(h.lane) filter (where not h.is_own), array_agg(h.slot) filter (where not h.is_own),
    array_agg(h.key_slot) filter (where not h.is_own)
  into own_limits, own_slots, rest_lanes, rest_slots, rest_key_slots
  from sorted h;
end
$$;
