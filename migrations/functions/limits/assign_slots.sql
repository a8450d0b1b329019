-- Slots for jobs that a claim is about to take, in their order: for each the number of its slot group, -1 where it needs none,
-- null where none was to be had. A job under two limits gets both slots or none. `short`: the limits that ran out.
-- p_job_lanes: the lane of each job; the next arrays say which limits a lane is under. p_own_…: slots that this transaction has
-- at hand, with their limits: no more of a limit than the jobs need.
create function longshore.assign_slots(
  p_job_lanes int[], p_lanes int[], p_limits int[], p_key_limits int[],
  p_own_limits int[] default '{}', p_own_slots smallint[] default '{}'
) returns table (slots smallint[], key_slots smallint[], short int[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in lock_jobs.
set lock_timeout = '10ms'
-- Of arrays as long as a claim the planner believes that they are short.
set enable_nestloop = off
as $$
declare
  v_jobs int := coalesce(cardinality(p_job_lanes), 0);
  -- The jobs that are under a limit, by their places; and where in v_limits each of its limits stands.
  v_limited int[];
  v_at int[];
  v_key_at int[];
  v_limits int[];
  v_needs int[];
  v_taken_limits int[] := '{}';
  v_taken smallint[] := '{}';
  -- What is at hand, limit by limit: a stretch of v_slots each, used up from its end.
  v_slots smallint[];
  v_from int[];
  v_left int[];
  v_limit int;
  v_key_limit int;
begin
  with job as materialized (
    select j.n, s.limit_id, s.key_limit
    from unnest(p_job_lanes) with ordinality as j(lane, n)
    join unnest(p_lanes, p_limits, p_key_limits) as s(lane, limit_id, key_limit) on s.lane = j.lane
    where s.limit_id is not null or s.key_limit is not null
  ), need as materialized (
    select n.id, sum(n.jobs)::int as jobs, row_number() over (order by n.id) as at
    from (
      select j.limit_id as id, 1 as jobs from job j where j.limit_id is not null
      union all
      select j.key_limit, 1 from job j where j.key_limit is not null
      union all
      select o.id, -1 from unnest(p_own_limits) as o(id)
    ) n
    group by n.id
  )
  select array_agg(j.n order by j.n), array_agg(t.at order by j.n), array_agg(k.at order by j.n),
    (select array_agg(n.id order by n.id) from need n), (select array_agg(n.jobs order by n.id) from need n)
  into v_limited, v_at, v_key_at, v_limits, v_needs
  from job j
  left join need t on t.id = j.limit_id
  left join need k on k.id = j.key_limit;

  short := '{}';
  slots := array_fill((-1)::smallint, array[v_jobs]);
  key_slots := slots;
  if v_limits is null then
    return next;
    return;
  end if;
  if 0 < any (v_needs) then
    select t.limits, t.slots, t.short into v_taken_limits, v_taken, short
    from longshore.take_slots_of_each(v_limits, v_needs) t;
  end if;
  if cardinality(v_limits) = 1 and cardinality(v_limited) = v_jobs and v_key_at[1] is null then
    -- All of them are under this limit alone.
    slots := p_own_slots || v_taken;
    slots := slots || array_fill(null::smallint, array[v_jobs - cardinality(slots)]);
    return next;
    return;
  end if;

  with stock as materialized (
    select s.id, s.slot from unnest(p_own_limits || v_taken_limits, p_own_slots || v_taken) as s(id, slot)
  ), counted as (
    select c.id, sum(c.slots)::int as slots
    from (select k.id, 0 as slots from unnest(v_limits) as k(id) union all select s.id, 1 from stock s) c
    group by c.id
  ), stretch as (
    select c.id, c.slots, (sum(c.slots) over (order by c.id) - c.slots)::int as before from counted c
  )
  select array_agg(x.before order by x.id), array_agg(x.slots order by x.id),
    (select coalesce(array_agg(s.slot order by s.id), '{}') from stock s)
  into v_from, v_left, v_slots
  from stretch x;
  for n in 1..cardinality(v_limited) loop
    v_limit := v_at[n];
    v_key_limit := v_key_at[n];
    if v_left[v_limit] = 0 or v_left[v_key_limit] = 0 then
      slots[v_limited[n]] := null;
      continue;
    end if;
    if v_limit is not null then
      slots[v_limited[n]] := v_slots[v_from[v_limit] + v_left[v_limit]];
      v_left[v_limit] := v_left[v_limit] - 1;
    end if;
    if v_key_limit is not null then
      key_slots[v_limited[n]] := v_slots[v_from[v_key_limit] + v_left[v_key_limit]];
      v_left[v_key_limit] := v_left[v_key_limit] - 1;
    end if;
  end loop;
  -- Taken for jobs whose other limit had run out.
  if /* guard: leftover */ 0 < any (v_left) /* end leftover */ then
    perform longshore.give_back_slots(
      array_agg(s.limit_id order by s.limit_id, s.number), array_agg(s.number order by s.limit_id, s.number),
      array_agg(s.slots order by s.limit_id, s.number))
    from (
      select v_limits[l.n] as limit_id, v_slots[v_from[l.n] + s.n] as number, count(*)::int as slots
      from generate_series(1, cardinality(v_limits)) as l(n), generate_series(1, v_left[l.n]) as s(n)
      group by 1, 2
    ) s;
  end if;
  return next;
end
$$;
