-- Lines of a job's log behind the last places that were seen of runs (p_tokens, p_seqs), and all of other runs; only of the run
-- p_from and later ones.
-- public: producer
create function longshore.read_unseen_logs(p_job uuid, p_from bigint, p_tokens bigint[], p_seqs int[], p_limit int)
returns table (
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
  where l.job_id = p_job and l.lease_token >= p_from
    and l.seq > coalesce(
      (select s.seq from unnest(p_tokens, p_seqs) as s(lease_token, seq) where s.lease_token = l.lease_token), 0)
  order by l.lease_token, l.seq limit p_limit;
end
$$;
