-- Of the groups, those in which every job has started. Jobs that other transactions are ending still look like running, so only
-- close_groups, after the commit, can tell whether a group has ended.
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
