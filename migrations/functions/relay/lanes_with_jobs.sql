-- The lanes of a queue behind p_after, at most p_most of them: those without a key, and of the others those with ready jobs.
-- public: relay
create function longshore.lanes_with_jobs(p_queue text, p_after int, p_most int) returns table (lane int, has_jobs boolean)
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_bitmapscan = off
as $$
begin
  return query
  select l.id, exists (select from longshore.jobs j where j.lane = l.id and j.state = 'ready' offset 0)
  from longshore.lanes l
  where l.queue = p_queue and l.id > p_after and (l.concurrency_key = '' or exists (
    select from longshore.jobs j where j.lane = l.id and j.state = 'ready' offset 0))
  order by l.id limit p_most;
end
$$;
