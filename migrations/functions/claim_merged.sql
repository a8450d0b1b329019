-- Claim from several lanes without limits: merge their heads without locks, then lock what was found. What others hold is
-- passed over and the merge goes on behind the last job it saw, so the order stays exact without locking a page of every
-- lane.
create function longshore.claim_merged(p_worker int, p_limit int, p_lanes int[]) returns table (
  id uuid, answer text, lane int, lease_token bigint, attempts smallint, max_attempts smallint, rescues smallint,
  score bigint, created_at timestamptz, payload jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_page uuid[];
  v_wanted int := p_limit;
  v_token bigint;
  v_found int;
  v_claimed int;
  v_after_score bigint := -1;
  v_after_id uuid := '00000000-0000-0000-0000-000000000000';
begin
  while v_wanted > 0 loop
    select array_agg(m.id order by m.score, m.id), max(m.score), count(*) into v_page, v_after_score, v_found
    from (
      select head.id, head.score
      from unnest(p_lanes) as l(id)
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
      -- As a text, so that the ready index does not offer itself: only the primary key is sensible here. The lane again:
      -- somebody may have changed what the job asks for since the merge saw it.
      select j.ctid from longshore.jobs j
      where j.id = any (v_page) and j.state::text = 'ready' and j.lane = any (p_lanes)
      for update skip locked
    ), claimed as (
      update longshore.jobs j
      set state = 'running', worker_id = p_worker, started_at = clock_timestamp(), attempts = j.attempts + 1, lease_token = v_token
      where j.ctid = any (array(select f.ctid from free f))
      returning j.*
    )
    select c.id, 'claimed'::text, c.lane, c.lease_token, c.attempts, c.max_attempts, c.rescues, c.score, c.created_at,
      c.payload
    from claimed c order by c.score, c.id;
    get diagnostics v_claimed = row_count;
    exit when v_found < v_wanted;
    v_wanted := v_wanted - v_claimed;
  end loop;
end
$$;
