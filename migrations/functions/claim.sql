-- Hand over up to p_limit of the best ready jobs that the worker may run, in order: best score first over all of
-- its lanes. Never waits for a lock: jobs that others are claiming are passed over. Every job handed over carries
-- a new lease token, one per call.
create function longshore.claim(p_worker int, p_limit int) returns table (
  id uuid, answer text, lane int, lease_token bigint, attempts smallint, max_attempts smallint, score bigint,
  created_at timestamptz, payload jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- On statistics taken while the queue was empty the planner expects two ready jobs in a lane, and reads and sorts all
-- 20,000 of them for a claim of 200. The ready index in its own order is the only sensible way.
set enable_bitmapscan = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_lanes int[];
  v_page uuid[];
  v_wanted int := p_limit;
  v_token bigint;
  v_found int;
  v_claimed int;
  v_after_score bigint := -1;
  v_after_id uuid := '00000000-0000-0000-0000-000000000000';
begin
  select array_agg(l.id) into v_lanes
  from longshore.workers w
  join longshore.lanes l on l.task = any (w.tasks) and l.tag = any (w.tags)
    and l.constraint_tag = any (w.constraint_tags) and l.queue = any (w.queues)
  where w.id = p_worker;

  if cardinality(v_lanes) = 1 then
    return query
    with head as materialized (
      select j.ctid from longshore.jobs j
      where j.lane = v_lanes[1] and j.state = 'ready'
      order by j.score, j.id
      limit p_limit
      for update skip locked
    ), claimed as (
      update longshore.jobs j
      set state = 'running', worker_id = p_worker, started_at = clock_timestamp(), attempts = j.attempts + 1,
        lease_token = (select nextval('longshore.lease_tokens'))
      where j.ctid = any (array(select h.ctid from head h))
      returning j.*
    )
    select c.id, 'claimed'::text, c.lane, c.lease_token, c.attempts, c.max_attempts, c.score, c.created_at, c.payload
    from claimed c order by c.score, c.id;
    return;
  end if;

  -- Several lanes: merge their heads without locks, then lock what was found. What others hold is passed over and
  -- the merge goes on behind the last job it saw, so the order stays exact without locking a page of every lane.
  while v_wanted > 0 and v_lanes is not null loop
    select array_agg(m.id order by m.score, m.id), max(m.score), count(*) into v_page, v_after_score, v_found
    from (
      select head.id, head.score
      from unnest(v_lanes) as l(id)
      cross join lateral (
        select j.id, j.score from longshore.jobs j
        where j.lane = l.id and j.state = 'ready' and (j.score, j.id) > (v_after_score, v_after_id)
        order by j.score, j.id
        limit v_wanted
      ) head
      order by head.score, head.id
      limit v_wanted
    ) m;
    exit when v_found = 0;
    v_after_id := v_page[v_found];
    v_token := coalesce(v_token, nextval('longshore.lease_tokens'));
    return query
    with free as materialized (
      -- As a text, so that the ready index does not offer itself: only the primary key is sensible here.
      select j.ctid from longshore.jobs j
      where j.id = any (v_page) and j.state::text = 'ready'
      for update skip locked
    ), claimed as (
      update longshore.jobs j
      set state = 'running', worker_id = p_worker, started_at = clock_timestamp(), attempts = j.attempts + 1, lease_token = v_token
      where j.ctid = any (array(select f.ctid from free f))
      returning j.*
    )
    select c.id, 'claimed'::text, c.lane, c.lease_token, c.attempts, c.max_attempts, c.score, c.created_at, c.payload
    from claimed c order by c.score, c.id;
    get diagnostics v_claimed = row_count;
    exit when v_found < v_wanted;
    v_wanted := v_wanted - v_claimed;
  end loop;
end
$$;
