-- The first lines of a job's log behind a place: the run, by its lease token, and the number within it. p_tokens, p_seqs: the last
-- places that the caller has seen of single runs. Lines up to those are left out: a run may log after a later one has begun.
-- public: producer
create function longshore.read_logs(
  p_job uuid, p_token bigint, p_seq int, p_limit int, p_tokens bigint[] default '{}', p_seqs int[] default '{}'
) returns table (
  lease_token bigint, seq int, attempt smallint, at timestamptz, level text, message text, data jsonb
)
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  if longshore.is_own_job(p_job) is not true then
    return;
  end if;
  return query
  select l.lease_token, l.seq, l.attempt, l.at, l.level, l.message, l.data
  from longshore.job_logs l
  where l.job_id = p_job and (l.lease_token, l.seq) > (p_token, p_seq)
    and l.seq > coalesce(
      (select s.seq from unnest(p_tokens, p_seqs) as s(lease_token, seq) where s.lease_token = l.lease_token), 0)
  order by l.lease_token, l.seq limit p_limit;
end
$$;
