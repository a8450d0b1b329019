-- The lanes of a queue behind p_after, at most p_most of them: those without a key, and of the others those with ready jobs. However
-- many lanes with a key there are: from each to the next lane with ready jobs, and from there to the next of this queue.
-- public: relay
create function longshore.lanes_with_jobs(p_queue text, p_after int, p_most int) returns table (lane int, has_jobs boolean)
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
  v_keyed int[] := '{}';
  v_at int := p_after;
  v_queue text;
  v_own int;
  v_ready int;
begin
  while cardinality(v_keyed) < p_most loop
    select l.queue, l.id into v_queue, v_own from longshore.lanes l
    where l.concurrency_key <> '' and (l.queue, l.id) > (p_queue, v_at) order by l.queue, l.id limit 1;
    exit when v_queue is distinct from p_queue;
    select j.lane into v_ready from longshore.jobs j
    where j.state = 'ready' and j.lane >= v_own order by j.lane, j.score, j.id limit 1;
    exit when v_ready is null;
    if v_ready = v_own then
      v_keyed := v_keyed || v_own;
    end if;
    v_at := greatest(v_own, v_ready - 1);
  end loop;
  return query
  select n.lane, exists (select from longshore.jobs j where j.lane = n.lane and j.state = 'ready' offset 0)
  from (
    (select l.id as lane from longshore.lanes l
      where l.concurrency_key = '' and (l.queue, l.id) > (p_queue, p_after) and l.queue <= p_queue
      order by l.queue, l.id limit p_most)
    union all select unnest(v_keyed)
  ) n
  order by n.lane limit p_most;
end
$$;
