-- Claim from several lanes without limits: merge their heads without locks, then lock what was found, a batch at a time. What
-- others hold is passed over and the next batch is looked at, so the order stays exact without locking a page of every lane.
-- Each merge reads a few jobs of each lane, see merge_heads.
create function longshore.claim_merged(p_worker int, p_limit int, p_lanes int[]) returns table (
  id uuid, answer text, lane int, lease_token bigint, attempts smallint, max_attempts smallint, rescues smallint,
  score bigint, created_at timestamptz, payload jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- In one merge.
  c_most_rows constant int := 10000;
  v_ids uuid[];
  v_scores bigint[];
  v_rows tid[];
  v_wanted int := p_limit;
  v_depth int := least(p_limit, 4 + 3 * p_limit / (2 * cardinality(p_lanes)));
  v_from int;
  -- Who has to look again is in a crowd, and most of what it finds will be held.
  v_batch int := p_limit;
  v_token bigint := nextval('longshore.lease_tokens');
  v_is_last boolean;
  v_claimed int;
  v_is_passed_over boolean := false;
  v_after_score bigint := -1;
  v_after_id uuid := '00000000-0000-0000-0000-000000000000';
begin
  loop
    select m.ids, m.scores, m.rows, m.is_last into v_ids, v_scores, v_rows, v_is_last
    from longshore.merge_heads(
      p_lanes, null, null, c_most_rows, v_depth, v_after_score, v_after_id,
      9223372036854775807, 'ffffffff-ffff-ffff-ffff-ffffffffffff') m;
    v_from := 1;
    while v_from <= cardinality(v_rows) loop
      return query
      with free as materialized (
        -- The state as a text, so that the ready index does not offer itself: the rows' places are known. The lane again:
        -- somebody may be changing what the job asks for. The token: others may have claimed it since ours was drawn, and given it back.
        select j.ctid from longshore.jobs j
        where j.ctid = any (v_rows[v_from : v_from + v_batch - 1]) and j.state::text = 'ready' and j.lane = any (p_lanes)
          and j.lease_token < v_token
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
      v_wanted := v_wanted - v_claimed;
      if v_wanted = 0 then
        return;
      end if;
      if v_claimed < cardinality(v_rows[v_from : v_from + v_batch - 1]) then
        v_is_passed_over := v_is_passed_over or exists (
          select from longshore.jobs j
          where j.ctid = any (v_rows[v_from : v_from + v_batch - 1]) and j.state::text = 'ready' and j.lease_token > v_token);
      end if;
      v_from := v_from + v_batch;
      v_batch := greatest(100, v_wanted);
    end loop;
    exit when v_is_last;
    v_after_score := v_scores[cardinality(v_ids)];
    v_after_id := v_ids[cardinality(v_ids)];
    v_depth := 2 * v_depth;
  end loop;
  if v_is_passed_over then
    -- It has been ready for a while: nobody will ring for it again.
    id := null;
    answer := 'more';
    return next;
  end if;
end
$$;
