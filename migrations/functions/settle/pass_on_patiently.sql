-- pass_on for callers that cannot leave a job for later, within p_patience. Two transactions may each lock a row and wait for the
-- other's: a child that is cancelled dooms an older child of the same parent. So after a moment this one releases all that it has
-- locked here and begins again, long before Postgres finds a deadlock and fails one of them.
create function longshore.pass_on_patiently(
  p_ids uuid[], p_states longshore.job_state[], p_workflows bigint[], p_patience interval
) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '100ms'
as $$
declare
  v_until timestamptz := clock_timestamp() + p_patience;
begin
  loop
    begin
      return longshore.pass_on(p_ids, p_states, p_workflows);
    exception when lock_not_available then
      if clock_timestamp() > v_until then
        raise;
      end if;
    end;
    perform pg_sleep(random() * 0.02);
  end loop;
end
$$;
