-- Slots for jobs that a claim has locked, in their order: for each the number of its slot group, -1 where it needs none,
-- null where none was to be had. A job under two limits gets both slots or none. `short`: the limits that ran out.
-- p_job_lanes: the lane of each job; the other arrays say which limits a lane is under.
create function longshore.assign_slots(p_job_lanes int[], p_lanes int[], p_limits int[], p_key_limits int[])
returns table (slots smallint[], key_slots smallint[], short int[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_jobs int := coalesce(cardinality(p_job_lanes), 0);
  v_need record;
  v_taken smallint[];
  -- What was taken, limit by limit: a stretch of v_slots each, used up from its end.
  v_slots smallint[] := '{}';
  v_limits int[] := '{}';
  v_from int[] := '{}';
  v_left int[] := '{}';
  -- The jobs that are under a limit, by their places.
  v_limited int[];
  v_lane int;
  v_limit int;
  v_key_limit int;
  n int;
begin
  short := '{}';
  select array_agg(j.n) into v_limited
  from unnest(p_job_lanes) with ordinality as j(lane, n)
  where j.lane = any (array(
    select s.lane from unnest(p_lanes, p_limits, p_key_limits) as s(lane, limit_id, key_limit)
    where s.limit_id is not null or s.key_limit is not null));
  for v_need in
    select x.id, x.is_key, count(*)::int as jobs
    from unnest(v_limited) as p(n)
    cross join lateral (select p_job_lanes[p.n] as lane) j
    join unnest(p_lanes, p_limits, p_key_limits) as s(lane, limit_id, key_limit) on s.lane = j.lane
    cross join lateral (values (s.limit_id, false), (s.key_limit, true)) as x(id, is_key)
    where x.id is not null
    group by 1, 2 order by 1
  loop
    v_taken := longshore.take_slots(v_need.id, v_need.jobs);
    if cardinality(v_taken) < v_need.jobs then
      short := short || v_need.id;
    end if;
    if v_need.jobs = v_jobs and not v_need.is_key and p_key_limits = array_fill(null::int, array[cardinality(p_lanes)]) then
      -- All of them are under this limit alone.
      slots := v_taken || array_fill(null::smallint, array[v_jobs - cardinality(v_taken)]);
      key_slots := array_fill((-1)::smallint, array[v_jobs]);
      return next;
      return;
    end if;
    v_limits := v_limits || v_need.id;
    v_from := v_from || cardinality(v_slots);
    v_left := v_left || cardinality(v_taken);
    v_slots := v_slots || v_taken;
  end loop;

  slots := array_fill((-1)::smallint, array[v_jobs]);
  key_slots := slots;
  if v_limits <> '{}' then
    foreach n in array v_limited loop
      v_lane := array_position(p_lanes, p_job_lanes[n]);
      v_limit := array_position(v_limits, p_limits[v_lane]);
      v_key_limit := array_position(v_limits, p_key_limits[v_lane]);
      if v_left[v_limit] = 0 or v_left[v_key_limit] = 0 then
        slots[n] := null;
        continue;
      end if;
      if v_limit is not null then
        slots[n] := v_slots[v_from[v_limit] + v_left[v_limit]];
        v_left[v_limit] := v_left[v_limit] - 1;
      end if;
      if v_key_limit is not null then
        key_slots[n] := v_slots[v_from[v_key_limit] + v_left[v_key_limit]];
        v_left[v_key_limit] := v_left[v_key_limit] - 1;
      end if;
    end loop;
    -- Taken for jobs whose other limit had run out.
    if 0 < any (v_left) then
      update longshore.slot_groups g set used = g.used - surplus.slots
      from (
        select v_limits[l.n] as limit_id, v_slots[v_from[l.n] + s.n] as number, count(*)::int as slots
        from generate_series(1, cardinality(v_limits)) as l(n), generate_series(1, v_left[l.n]) as s(n)
        group by 1, 2
      ) surplus
      where g.limit_id = surplus.limit_id and g.number = surplus.number;
    end if;
  end if;
  return next;
end
$$;
