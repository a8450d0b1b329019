-- How a job ends if one that it was to run after has not succeeded, by the policy of the edge between them. Null: it runs all the same.
create function longshore.doom_of(p_policy longshore.edge_policy) returns longshore.job_state
language sql immutable parallel safe
return (case
  when /* guard: cancel-policy */ p_policy = 'cancel' /* end cancel-policy */ then 'cancelled'
  when /* guard: run-policy */ p_policy <> 'run' /* end run-policy */ then 'dependency_failed'
end)::longshore.job_state;
