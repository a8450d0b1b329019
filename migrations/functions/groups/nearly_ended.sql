-- Those of the groups in which nothing is left that has not started. What others are just ending still looks like running, so
-- whether a group has ended is told only after the commit, by close_groups.
create function longshore.nearly_ended(p_groups uuid[]) returns setof uuid
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
-- As in pass_on.
set enable_seqscan = off
as $$
begin
  return query
  select g.id from unnest(p_groups) as g(id)
  where not exists (
    select from longshore.jobs j where j.group_id = g.id and j.state in ('waiting', 'scheduled', 'ready') offset 0);
end
$$;
