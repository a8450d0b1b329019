-- Settle what has ended and claim what comes next: one round trip, one commit.
create function longshore.settle_and_claim(
  p_worker int, p_ids uuid[], p_tokens bigint[], p_results jsonb, p_others jsonb, p_limit int
) returns table (
  id uuid, answer text, lane int, lease_token bigint, attempts smallint, max_attempts smallint, score bigint,
  created_at timestamptz, payload jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
  return query
  select s.id, s.answer, null::int, null::bigint, null::smallint, null::smallint, null::bigint, null::timestamptz, null::jsonb
  from longshore.settle(p_worker, p_ids, p_tokens, p_results, p_others) s;
  if p_limit > 0 then
    return query select * from longshore.claim(p_worker, p_limit);
  end if;
end
$$;
