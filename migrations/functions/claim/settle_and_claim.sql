-- Settle what has ended and claim what comes next: one round trip, one commit, one row. Columns hold all jobs of the
-- claim: ids and numbers joined by commas, payloads (JSON texts) by newlines, which they never hold; one lane stands for all. A row per job would
-- cost both sides more than the job's own work. A payload of more than 64 KiB travels as nothing and is read apart, so
-- that the row stays below what one text can hold, whatever the payloads. `alone` names the jobs that were rescued twice
-- or more: each of them is to run alone in its process. `wait` is claim's answer where it has one. p_these and p_lanes: the
-- jobs that Redis named, and where; `refused` lists those that are ready all the same: id, answer, lane, score and token. `ready`: what the settled
-- runs made ready: id, lane, score and token; of very many only the first. `groups`: those that may be at their end: close_groups tells, after the
-- commit. `traces`: only with p_is_traced, see read_traces. p_from: where the claim may begin to read, see claim_plain; a hint. p_secret: the
-- worker's own, without which nothing is done.
create function longshore.settle_and_claim(
  p_worker int, p_ids uuid[], p_tokens bigint[], p_results jsonb, p_others jsonb, p_limit int,
  p_these uuid[] default null, p_lanes int[] default null, p_is_traced boolean default false, p_from bigint default null,
  p_secret bytea default null
) returns table (
  busy text, lost text, wait text, ready text, groups text, refused text, alone text, lease_token bigint, ids text, lanes text, attempts text,
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
  v_is_claimed boolean;
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
  if v_lanes is null and (p_these is not null or p_limit > 0) then
    select c.* into v_is_claimed, lease_token, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone, refused
    from longshore.claim_plain(p_worker, p_limit, p_these, p_lanes, p_from) c;
  end if;
  if v_is_claimed then
    null; -- the usual case
  elsif p_these is not null then
    select max(c.lease_token) filter (where c.answer = 'claimed'), string_agg(c.id::text, ',') filter (where c.answer = 'claimed'),
      string_agg(c.lane::text, ',') filter (where c.answer = 'claimed'), string_agg(c.attempts::text, ','),
      string_agg(c.max_attempts::text, ','), string_agg(c.score::text, ',') filter (where c.answer = 'claimed'),
      string_agg(c.created_at::text, ','), string_agg(case when octet_length(p.text) > 65536 then '' else p.text end, E'\n'),
      string_agg(c.id::text, ',') filter (where c.rescues >= 2), max(c.answer) filter (where c.id is null),
      string_agg(concat_ws(' ', c.id, c.answer, c.lane, c.score, c.lease_token), ',')
        filter (where c.answer <> 'claimed' and c.id is not null)
    into lease_token, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone, wait, refused
    from longshore.claim_these(p_worker, p_these, p_lanes, v_lanes, v_slots, v_key_slots) c
    cross join lateral (select c.payload::text as text offset 0) p;
  elsif p_limit > 0 then
    select max(c.lease_token), string_agg(c.id::text, ','), string_agg(c.lane::text, ','),
      string_agg(c.attempts::text, ','), string_agg(c.max_attempts::text, ','), string_agg(c.score::text, ','),
      string_agg(c.created_at::text, ','), string_agg(case when octet_length(p.text) > 65536 then '' else p.text end, E'\n'),
      string_agg(c.id::text, ',') filter (where c.rescues >= 2), max(c.answer) filter (where c.id is null)
    into lease_token, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone, wait
    from longshore.claim(p_worker, p_limit, v_lanes, v_slots, v_key_slots, p_from) c
    -- `offset 0` keeps the planner from writing the text twice.
    cross join lateral (select c.payload::text as text offset 0) p;
  elsif v_lanes is not null then
    perform longshore.reopen(longshore.free_slots(v_lanes, v_slots, v_key_slots));
  end if;
  if p_is_traced and ids is not null then
    traces := longshore.read_traces(string_to_array(ids, ',')::uuid[]);
  end if;
  if v_ready is not null then
    select string_agg(concat_ws(' ', j.id, j.lane, j.score, j.lease_token), ',') into ready
    from longshore.jobs j where j.id = any (v_ready[1:1000]) and j.state = 'ready';
  end if;
  return next;
end
$$;
