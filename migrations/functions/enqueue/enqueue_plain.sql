-- Plain jobs in few statements: new jobs of one lane that ask for nothing (no constraints, key, time, workflow or group).
-- Payloads as in enqueue_jobs, which does everything else. Returns where they stand. p_hinted: the caller tells Redis of them
-- after the commit.
-- public: producer
create function longshore.enqueue_plain(
  p_queue text, p_task text, p_tag text, p_priority int, p_max_attempts int, p_ids uuid[], p_payloads text, p_hinted boolean,
  out lane int, out score bigint
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_variable
declare
  v_role oid := longshore.acting_role();
  v_made int;
  v_is_redis boolean;
  v_is_listened boolean;
  v_transaction xid8;
begin
  if p_priority is null or p_priority not between 0 and 2047 then
    raise exception 'longshore: priority must be from 0 to 2047' using errcode = 'invalid_parameter_value';
  end if;
  perform longshore.check_payloads(string_to_array(p_payloads, E'\n')) where octet_length(p_payloads) > 4194304;
  -- As in find_lane.
  /* guard: number-first */ v_transaction := pg_current_xact_id(); /* end number-first */
  select min(l.id), bool_or(s.dispatch = 'redis'), bool_or(exists (select from longshore.workers w where w.listening))
  into lane, v_is_redis, v_is_listened
  from longshore.settings s
  left join longshore.lanes l on l.task = p_task and l.tag = p_tag and l.constraint_tag = 'c:' and l.queue = p_queue
    and l.concurrency_key = '' /* guard: not-marked */ and l.unused_since is null /* end not-marked */;
  /* point: found */
  if lane is null /* guard: own-snapshot */ or current_setting('transaction_isolation') <> 'read committed' /* end own-snapshot */ then
    lane := longshore.find_lane(p_queue, p_task, p_tag, 'c:');
  end if;
  score := longshore.score_ms(p_priority, floor(extract(epoch from clock_timestamp()) * 1000)::bigint);
  insert into longshore.jobs (id, lane, score, state, max_attempts, payload, enqueued_by)
  select t.id, lane, score, 'ready', p_max_attempts, t.payload::jsonb, v_role
  from unnest(p_ids, string_to_array(p_payloads, E'\n')) as t(id, payload);
  get diagnostics v_made = row_count;
  -- One too many on either side is a null, which no job may have.
  if v_made <> cardinality(p_ids) then
    raise exception 'longshore: % payloads for % ids', v_made, cardinality(p_ids) using errcode = 'invalid_parameter_value';
  end if;
  if v_is_redis then
    /* guard: tell-relay */ insert into longshore.outbox (jobs, lane, score, hinted)
    values (p_ids, lane, score, p_hinted); /* end tell-relay */
  end if;
  if v_is_listened then
    /* guard: wake-worker */ perform longshore.ring(lane, cardinality(p_ids), score); /* end wake-worker */
  end if;
end
$$;
