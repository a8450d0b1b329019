-- The queues that have ready jobs: what a relay that begins to lead asks once. From one lane with ready jobs to the next, however many others there are.
-- public: relay
create function longshore.queues_with_jobs() returns setof text
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  return query
  with recursive steps as (
    (select j.lane from longshore.jobs j where j.state = 'ready' order by j.lane, j.score, j.id limit 1)
    union all
    select n.lane from steps s cross join lateral (
      select j.lane from longshore.jobs j where j.state = 'ready' and j.lane > s.lane order by j.lane, j.score, j.id limit 1
    ) n
  )
  select distinct l.queue from steps s
  cross join lateral (select l.queue from longshore.lanes l where l.id = s.lane offset 0) l;
end
$$;
