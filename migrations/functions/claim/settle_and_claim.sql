-- Settle what has ended and claim what comes next: one round trip, one commit, one row. For the columns of the claim see claim. `busy`,
-- `lost`: runs that were not settled, see settle. `ready`: what the settled runs made ready: id, lane, score and token; of very many
-- only the first. `groups`: those that may be at their end: close_groups tells, after the commit. `traces`: only with p_is_traced, see
-- read_traces. p_these and p_lanes: jobs that Redis named, and where. p_secret: the worker's own, without which nothing is done.
-- public: worker
create function longshore.settle_and_claim(
  p_worker int, p_ids uuid[], p_tokens bigint[], p_results jsonb, p_others jsonb, p_limit int,
  p_these uuid[] default null, p_lanes int[] default null, p_is_traced boolean default false, p_from bigint default null,
  p_secret bytea default null
) returns table (
  busy text, lost text, wait text, ready text, groups text, refused text, alone text, lease_tokens text, ids text, lanes text, attempts text,
  max_attempts text, scores text, created_at text, payloads text, traces text
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
-- For everything that is called from here: there is one sensible plan for each statement, and making it anew for each call
-- cost more than running it.
set plan_cache_mode = force_generic_plan
-- Such a plan may be as old as the connection, made when the tables had a page: it must not read them whole when they have grown.
set enable_seqscan = off
-- Times travel as texts, whatever the server's settings.
set timezone = 'UTC'
set datestyle = 'ISO'
as $$
declare
  v_lanes int[];
  v_slots smallint[];
  v_key_slots smallint[];
  v_ready uuid[];
begin
  p_worker := longshore.need_worker(p_worker, p_secret);
  if cardinality(p_ids) > 0 or p_others is not null then
    select string_agg(s.id::text, ',') filter (where s.answer = 'busy'),
      string_agg(s.id::text, ',') filter (where s.answer = 'lost'),
      array_agg(s.lane) filter (where s.answer = 'held'), array_agg(s.slot) filter (where s.answer = 'held'),
      array_agg(s.key_slot) filter (where s.answer = 'held'), array_agg(s.id) filter (where s.answer = 'ready'),
      string_agg(distinct s.id::text, ',') filter (where s.answer = 'group')
    into busy, lost, v_lanes, v_slots, v_key_slots, v_ready, groups
    from longshore.settle(p_worker, p_ids, p_tokens, p_results, p_others) s;
  end if;
  if p_these is not null or p_limit > 0 then
    select c.* into wait, refused, lease_tokens, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone
    from longshore.claim(p_worker, p_limit, p_these, p_lanes, p_from, v_lanes, v_slots, v_key_slots) c;
  elsif /* guard: free-slots */ v_lanes is not null /* end free-slots */ then
    perform longshore.reopen(longshore.free_slots(v_lanes, v_slots, v_key_slots));
  end if;
  if p_is_traced and ids is not null then
    traces := longshore.read_traces(string_to_array(ids, ',')::uuid[]);
  end if;
  if v_ready is not null then
    select string_agg(concat_ws(' ', j.id, j.lane, j.score, j.lease_token), ',') into ready
    from longshore.jobs j where j.id = any (v_ready[1:1000]) and j.state = 'ready';
  end if;
  /* point: done */
  return next;
end
$$;
