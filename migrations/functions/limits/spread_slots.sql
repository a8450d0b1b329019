-- A capacity as slot groups: at most 50, of equal size but for the last, which holds the rest.
create function longshore.spread_slots(p_capacity int) returns table (number smallint, capacity int)
language sql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select n::smallint, least(per_group, p_capacity - n * per_group)
  from (select ((p_capacity + 49) / 50) as per_group) s,
    generate_series(0, (p_capacity + per_group - 1) / per_group - 1) as n
$$;
