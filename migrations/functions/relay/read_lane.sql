-- Up to p_most ready jobs of a lane from a place in the order on, best first: what the relay reads into Redis, and compares
-- with it. One row of joined texts.
-- public: relay
create function longshore.read_lane(p_lane int, p_score bigint, p_id uuid, p_most int)
returns table (ids text, scores text, tokens text)
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_bitmapscan = off
set enable_seqscan = off
as $$
begin
  select string_agg(h.id::text, ','), string_agg(h.score::text, ','), string_agg(h.lease_token::text, ',')
  into ids, scores, tokens
  from (
    select j.id, j.score, j.lease_token from longshore.jobs j
    where j.lane = p_lane and j.state = 'ready' and (j.score, j.id) >= (p_score, p_id)
    order by j.score, j.id limit p_most
  ) h;
  return next;
end
$$;
