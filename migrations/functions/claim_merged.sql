-- Claim from several lanes without limits: merge their heads without locks, then lock what was found. What others hold is
-- passed over and the merge goes on behind the last job it saw, so the order stays exact without locking a page of every
-- lane. Each turn reads a few jobs of each lane, and twice as many the next time, see merge_heads.
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
  v_depth int := 8 + 2 * p_limit / cardinality(p_lanes);
  v_is_last boolean;
  v_claimed int;
  v_after_score bigint := -1;
  v_after_id uuid := '00000000-0000-0000-0000-000000000000';
begin
  while v_wanted > 0 loop
    select m.ids, m.after_score, m.after_id, m.is_last into v_page, v_after_score, v_after_id, v_is_last
    from longshore.merge_heads(p_lanes, null, v_wanted, v_depth, v_after_score, v_after_id, 9223372036854775807) m;
    exit when v_page = '{}';
    v_depth := v_depth * 2;
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
    exit when v_is_last;
    v_wanted := v_wanted - v_claimed;
  end loop;
end
$$;
