-- Enqueue one job from plain SQL, inside whatever transaction the caller is in:
--   select longshore.enqueue('send-mail', '{"to": "a@b.c"}', '{"priority": 10, "delayMs": 60000}')
-- Options: id, queue, tag, constraints (what a worker must have: {"gpu": "a100"}), concurrencyKey, priority (0 to 2047),
-- delayMs or runAt (a timestamp), attempts. What is not given comes from the registered task, else from the defaults. Returns the job's id.
create function longshore.enqueue(p_task text, p_payload jsonb default '{}', p_options jsonb default '{}') returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_task longshore.tasks;
  v_id uuid;
  v_unknown text;
  v_priority numeric := (p_options ->> 'priority')::numeric;
  v_delay_ms numeric := (p_options ->> 'delayMs')::numeric;
  v_attempts numeric := (p_options ->> 'attempts')::numeric;
  v_run_at_ms bigint := floor(extract(epoch from (p_options ->> 'runAt')::timestamptz) * 1000);
begin
  if p_task is null or length(p_task) not between 1 and 200 then
    raise exception 'longshore: a task name has 1 to 200 characters, got %', coalesce(length(p_task), 0)
      using errcode = 'invalid_parameter_value';
  end if;
  if p_payload is null or octet_length(p_payload::text) > 262144 then
    raise exception 'longshore: the payload of % must be JSON of at most 262144 bytes', p_task
      using errcode = 'invalid_parameter_value', hint = 'Store large data elsewhere and enqueue a reference to it.';
  end if;
  select k into v_unknown from jsonb_object_keys(p_options) k
  where k not in ('id', 'queue', 'tag', 'constraints', 'concurrencyKey', 'priority', 'delayMs', 'runAt', 'attempts') limit 1;
  if v_unknown is not null then
    raise exception 'longshore: unknown option "%"', v_unknown using errcode = 'invalid_parameter_value',
      hint = 'Options are id, queue, tag, constraints, concurrencyKey, priority, delayMs, runAt and attempts.';
  end if;
  if not coalesce(v_priority, 0) between 0 and 2047 or v_priority <> trunc(v_priority) then
    raise exception 'longshore: priority must be a whole number from 0 to 2047, got %', v_priority
      using errcode = 'invalid_parameter_value';
  end if;
  if not coalesce(v_attempts, 1) between 1 and 1000 or v_attempts <> trunc(v_attempts) then
    raise exception 'longshore: attempts must be a whole number from 1 to 1000, got %', v_attempts
      using errcode = 'invalid_parameter_value';
  end if;
  if not coalesce(v_delay_ms, 0) between 0 and 315360000000 then
    raise exception 'longshore: delayMs must be between 0 and 315360000000 (ten years), got %', v_delay_ms
      using errcode = 'invalid_parameter_value';
  end if;
  if v_delay_ms is not null and v_run_at_ms is not null then
    raise exception 'longshore: give delayMs or runAt, not both' using errcode = 'invalid_parameter_value';
  end if;
  if not coalesce(v_run_at_ms, 0) between 0 and 4398046511103 then
    raise exception 'longshore: runAt must lie between 1970 and 2109, got %', p_options ->> 'runAt'
      using errcode = 'invalid_parameter_value';
  end if;

  select * into v_task from longshore.tasks t where t.name = p_task;
  if p_options ->> 'concurrencyKey' is not null and v_task.concurrency_per_key is null then
    raise exception 'longshore: task % has no concurrencyPerKey, so concurrencyKey would limit nothing', p_task
      using errcode = 'invalid_parameter_value', hint = 'Declare it with defineTask and start a process that knows the task.';
  end if;
  if length(p_options ->> 'concurrencyKey') not between 1 and 200 then
    raise exception 'longshore: concurrencyKey has 1 to 200 characters, got %', length(p_options ->> 'concurrencyKey')
      using errcode = 'invalid_parameter_value';
  end if;
  v_id := coalesce((p_options ->> 'id')::uuid, longshore.new_id());
  perform longshore.enqueue_jobs(
    jsonb_build_array(jsonb_build_object(
      'task', p_task,
      'queue', coalesce(p_options ->> 'queue', v_task.queue, 'default'),
      'tag', coalesce(p_options ->> 'tag', v_task.tag, 'default'),
      'constraintTag', case when p_options ? 'constraints'
        then longshore.constraint_tag(nullif(p_options -> 'constraints', 'null')) else 'c:' end,
      'concurrencyKey', coalesce(p_options ->> 'concurrencyKey', ''),
      'maxAttempts', coalesce(v_attempts, v_task.max_attempts, 3),
      'priority', coalesce(v_priority, 0),
      'delayMs', floor(v_delay_ms),
      'runAt', v_run_at_ms)),
    array[v_id], null, p_payload::text, p_options ? 'id');
  return v_id;
end
$$;
