-- Whether a job that waits for nothing else is ready or scheduled, by the milliseconds until its run time.
create function longshore.state_by_time(p_wait_ms bigint) returns longshore.job_state
language sql immutable parallel safe
return (case when p_wait_ms > 0 then 'scheduled' else 'ready' end)::longshore.job_state;
