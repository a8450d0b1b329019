-- Claim from several lanes without limits: merge their heads without locks, then lock what was found. What others hold is
-- passed over and the merge goes on behind the last job it saw, so the order stays exact without locking a page of every
-- lane. Each turn reads a few jobs of each lane, see merge_heads.
create function longshore.claim_merged(p_worker int, p_limit int, p_lanes int[]) returns table (
  id uuid, answer text, lane int, lease_token bigint, attempts smallint, max_attempts smallint, rescues smallint,
  score bigint, created_at timestamptz, payload jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_rows tid[];
  v_wanted int := p_limit;
  -- The first look is for what is wanted. Who has to look again is in a crowd, and most of what it finds will be held.
  v_look int := p_limit;
  v_depth int := 8 + 2 * p_limit / cardinality(p_lanes);
  v_token bigint := nextval('longshore.lease_tokens');
  v_is_last boolean;
  v_claimed int;
  v_after_score bigint := -1;
  v_after_id uuid := '00000000-0000-0000-0000-000000000000';
begin
  while v_wanted > 0 loop
    select m.rows, m.after_score, m.after_id, m.is_last into v_rows, v_after_score, v_after_id, v_is_last
    from longshore.merge_heads(
      p_lanes, null, null, v_look, v_depth, v_after_score, v_after_id,
      9223372036854775807, 'ffffffff-ffff-ffff-ffff-ffffffffffff') m;
    exit when v_rows = '{}';
    return query
    with free as materialized (
      -- The state as a text, so that the ready index does not offer itself: the rows' places are known. The lane again:
      -- somebody may be changing what the job asks for.
      select j.ctid from longshore.jobs j
      where j.ctid = any (v_rows) and j.state::text = 'ready' and j.lane = any (p_lanes)
      order by j.score, j.id
      limit v_wanted
      for no key update skip locked
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
    -- Deeper where few lanes hold most of the jobs.
    v_depth := case when cardinality(v_rows) < v_look then 2 * v_depth else 8 + 8 * p_limit / cardinality(p_lanes) end;
    v_look := 4 * p_limit;
  end loop;
end
$$;
