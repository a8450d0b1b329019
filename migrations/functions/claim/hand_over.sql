-- The hand-over: the only statement that makes jobs running. The caller has locked the rows and checked that the worker may run them.
-- The answer has the best first. p_slots, p_key_slots: for each row the numbers of its slot groups (-1: it needs none), or
-- null where no limit is in play. p_lane: the lane of all of them, where they have one.
--
-- The jobs of one hand-over share a lease token. It is drawn when all rows are locked: so it is above every token that one of them had.
-- All jobs travel in one row, see claim: a row for each would cost both sides more than the job's own work. A payload of more than
-- 64 KiB travels as nothing and is read apart, so that the row stays below what one text can hold.
create function longshore.hand_over(
  p_worker int, p_rows tid[], p_slots smallint[], p_key_slots smallint[], p_lane int,
  out jobs int, out lease_tokens text, out ids text, out lanes text, out attempts text, out max_attempts text, out scores text,
  out created_at text, out payloads text, out alone text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  -- In the order of their places, so that the update finds the slots of a row by a binary search (width_bucket). A join with the
  -- rows and their numbers cost claims without slots too: a twentieth of what Postgres does for a job.
  if p_slots is not null then
    select array_agg(g.row order by g.row), array_agg(g.slot order by g.row), array_agg(g.key_slot order by g.row)
    into p_rows, p_slots, p_key_slots
    from unnest(p_rows, p_slots, p_key_slots) as g(row, slot, key_slot) where g.row is not null;
  end if;
  with claimed as (
    update longshore.jobs j
    set state = 'running', worker_id = p_worker, started_at = clock_timestamp(), attempts = j.attempts + 1,
      lease_token = /* guard: new-token */ (select nextval('longshore.lease_tokens')) /* end new-token */,
      slot = /* guard: slot */ nullif(p_slots[width_bucket(j.ctid, p_rows)], -1) /* end slot */,
      key_slot = /* guard: key-slot */ nullif(p_key_slots[width_bucket(j.ctid, p_rows)], -1) /* end key-slot */
    where j.ctid = any (p_rows)
    returning j.id, j.lane, j.lease_token, j.attempts, j.max_attempts, j.rescues, j.score, j.created_at, j.payload
  )
  select count(*), max(c.lease_token) || '*' || count(*), string_agg(c.id::text, ','),
    coalesce(p_lane::text, string_agg(c.lane::text, ',') filter (where p_lane is null)), string_agg(c.attempts::text, ','),
    string_agg(c.max_attempts::text, ','), string_agg(c.score::text, ','), string_agg(c.created_at::text, ','),
    string_agg(case when octet_length(c.payload) > 65536 then '' else c.payload end, E'\n'),
    string_agg(c.id::text, ',') filter (where c.rescues >= 2)
  into jobs, lease_tokens, ids, lanes, attempts, max_attempts, scores, created_at, payloads, alone
  from (
    select c.id, c.lane, c.lease_token, c.attempts, c.max_attempts, c.rescues, c.score, c.created_at, c.payload::text as payload
    from claimed c order by c.score, c.id
  ) c;
end
$$;
