-- Give back the slots of jobs that this transaction wanted to claim with this token and could not: somebody held them.
-- The arrays are those of claim_limited: for each job its lane and slots, for each lane its limits. Returns the limits.
create function longshore.return_slots(
  p_ids uuid[], p_job_lanes int[], p_slots smallint[], p_key_slots smallint[], p_token bigint,
  p_lanes int[], p_limits int[], p_key_limits int[]
) returns int[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_limits int[];
begin
  with given as materialized (
    select p.* from unnest(p_ids, p_job_lanes, p_slots, p_key_slots) as p(id, lane, slot, key_slot)
    where p.slot >= 0 and p.key_slot is not null or p.key_slot >= 0 and p.slot is not null
  ), surplus as materialized (
    select x.limit_id, x.number, count(*)::int as slots
    from given p
    join unnest(p_lanes, p_limits, p_key_limits) as s(lane, limit_id, key_limit) on s.lane = p.lane
    cross join lateral (values (s.limit_id, p.slot), (s.key_limit, p.key_slot)) as x(limit_id, number)
    where x.number >= 0 and not exists (select from longshore.jobs j where j.id = p.id and j.lease_token = p_token offset 0)
    group by 1, 2
  ), returned as (
    update longshore.slot_groups g set used = g.used - surplus.slots
    from surplus
    where g.limit_id = surplus.limit_id and g.number = surplus.number
  )
  select array_agg(distinct surplus.limit_id) into v_limits from surplus;
  return v_limits;
end
$$;
