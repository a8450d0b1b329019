-- The last lines of a job's log, the last one first.
-- public: producer
create function longshore.read_last_logs(p_job uuid, p_limit int) returns table (
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
  from longshore.job_logs l where l.job_id = p_job
  order by l.lease_token desc, l.seq desc limit p_limit;
end
$$;
