-- Enqueue one job from plain SQL, inside whatever transaction the caller is in:
--   select longshore.enqueue('send-mail', '{"to": "a@b.c"}', '{"priority": 10, "delayMs": 60000}')
-- Options: id, queue, tag, constraints (what a worker must have: {"gpu": "a100"}), concurrencyKey, priority (0 to 2047),
-- delayMs or runAt (a timestamp), maxAttempts, workflow (jobs with the same run one after another), onWorkflowFailure ('continue' or
-- 'halt'), traceparent (of W3C Trace Context: the spans of its runs become children of that one). What is not given comes from the
-- registered task, else from the defaults. Returns the job's id.
-- public: producer
create function longshore.enqueue(p_task text, p_payload jsonb default '{}', p_options jsonb default '{}') returns uuid
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_task longshore.tasks;
  v_id uuid;
  v_key text;
  v_priority numeric;
  v_delay_ms numeric;
  v_attempts numeric;
  v_run_at_ms bigint;
  v_workflow text;
  v_on_failure text;
  v_trace text;
begin
  if p_task is null or length(p_task) not between 1 and 200 or p_task ~ E'[\\x01-\\x1f\\x7f-\\x9f]' then
    raise exception 'longshore: a task name has 1 to 200 characters and no control characters, got % characters',
      coalesce(length(p_task), 0) using errcode = 'invalid_parameter_value';
  end if;
  if p_payload is null or octet_length(p_payload::text) > 262144 then
    raise exception 'longshore: the payload of % must be JSON of at most 262144 bytes', p_task
      using errcode = 'invalid_parameter_value', hint = 'Store large data elsewhere and enqueue a reference to it.';
  end if;
  -- Postgres writes numbers without an exponent, so these are easy to find.
  if octet_length(p_payload::text) > 308 and p_payload::text ~ '[0-9]{155}[0-9]{154}' and jsonb_path_exists(p_payload,
    '$.** ? (@.type() == "number" && (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308))')
  then
    raise exception 'longshore: the payload of % holds a number beyond 1.8e308, which a handler could not read', p_task
      using errcode = 'invalid_parameter_value', hint = 'Write it as a text.';
  end if;
  perform longshore.check_options(
    p_options,
    '{id,queue,tag,constraints,concurrencyKey,priority,delayMs,runAt,maxAttempts,workflow,onWorkflowFailure,traceparent}');
  v_priority := longshore.option_number(p_options, 'priority', 0, 2047);
  v_attempts := longshore.option_number(p_options, 'maxAttempts', 1, 1000);
  v_delay_ms := longshore.option_number(p_options, 'delayMs', 0, 315360000000, false);
  v_run_at_ms := longshore.option_time(p_options, 'runAt');
  if v_delay_ms is not null and v_run_at_ms is not null then
    raise exception 'longshore: give delayMs or runAt, not both' using errcode = 'invalid_parameter_value';
  end if;
  v_workflow := longshore.option_text(p_options, 'workflow', 200);
  v_on_failure := longshore.option_text(p_options, 'onWorkflowFailure', 10);
  if v_on_failure not in ('continue', 'halt') or (v_on_failure is not null and v_workflow is null) then
    raise exception 'longshore: onWorkflowFailure is "continue" or "halt", and is for a job with a workflow'
      using errcode = 'invalid_parameter_value';
  end if;
  if longshore.option_text(p_options, 'id', 100) !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
    raise exception 'longshore: a job id is a UUID, got %', p_options -> 'id' using errcode = 'invalid_parameter_value';
  end if;
  v_trace := longshore.option_text(p_options, 'traceparent', 100);
  if v_trace !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' or v_trace ~ '-(0{32}|0{16})-' then
    raise exception 'longshore: traceparent must be 00-<trace id>-<span id>-<flags>, 32, 16 and 2 hex digits in lower case, got %', v_trace
      using errcode = 'invalid_parameter_value', hint = 'Leave it out where there is no trace.';
  end if;

  select * into v_task from longshore.tasks t where t.name = p_task;
  v_key := longshore.option_text(p_options, 'concurrencyKey', 200);
  if v_key is not null and v_task.concurrency_per_key is null then
    raise exception 'longshore: task % has no concurrencyPerKey, so concurrencyKey would limit nothing', p_task
      using errcode = 'invalid_parameter_value', hint = 'Declare it with defineTask and start a process that knows the task.';
  end if;
  v_id := coalesce((p_options ->> 'id')::uuid, longshore.new_id());
  perform longshore.insert_jobs(
    jsonb_build_array(jsonb_build_object(
      'task', p_task,
      'queue', coalesce(longshore.option_text(p_options, 'queue', 100), v_task.queue, 'default'),
      'tag', coalesce(longshore.option_text(p_options, 'tag', 100), v_task.tag, 'default'),
      'constraintTag', case when p_options ? 'constraints'
        then longshore.constraint_tag(nullif(p_options -> 'constraints', 'null')) else 'c:' end,
      'concurrencyKey', coalesce(v_key, ''),
      'maxAttempts', coalesce(v_attempts, v_task.max_attempts, 3),
      'priority', coalesce(v_priority, 0),
      'delayMs', floor(v_delay_ms),
      'runAt', v_run_at_ms)),
    array[v_id], null, p_payload::text, p_options ->> 'id' is not null, false,
    case when v_workflow is not null then array[v_workflow] end, array[v_on_failure = 'halt'],
    p_traces => case when v_trace is not null then array[v_trace] end, p_whole => true);
  return v_id;
end
$$;
