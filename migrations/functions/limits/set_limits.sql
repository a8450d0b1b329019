-- The limits of a task change, to what its tasks row will say: its own, and those of its keys. The caller holds what changes at
-- once, see hold_limits. Where keys were limited before, the first page of them changes here; the leader goes on with the others.
create function longshore.set_limits(p_task text, p_concurrency int, p_per_key int) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in hold_limits.
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  v_key text;
  v_was longshore.tasks;
begin
  if p_concurrency < 1 or p_per_key < 1 then
    raise exception 'longshore: the concurrency of % must be a whole number from 1 to 1000000', left(p_task, 200)
      using errcode = 'invalid_parameter_value', hint = 'Leave it out for no limit.';
  end if;
  select * into v_was from longshore.tasks t where t.name = p_task;
  if v_was.concurrency is distinct from p_concurrency then
    perform longshore.set_limit(p_task, '', p_concurrency);
  end if;
  if v_was.concurrency_per_key is distinct from p_per_key then
    if v_was.concurrency_per_key is null then
      -- Keys of which something runs that holds no slot; others get their limit when a claim meets them.
      for v_key in
        select distinct l.concurrency_key from longshore.workers w
        cross join lateral (select j.lane from longshore.jobs j where j.worker_id = w.id and j.state = 'running' offset 0) j
        cross join lateral (select l.task, l.concurrency_key from longshore.lanes l where l.id = j.lane offset 0) l
        where l.task = p_task and l.concurrency_key <> ''
          and not exists (
            select from longshore.limits k
            where k.task = p_task and k.key = l.concurrency_key and k.capacity is not null offset 0)
        order by 1
      loop
        perform longshore.set_limit(p_task, v_key, p_per_key);
      end loop;
    end if;
    insert into longshore.limit_changes (task) values (p_task)
    on conflict (task) do update set done_to = '', passed_over = 0;
    perform longshore.change_key_limits(p_task, p_per_key);
  end if;
end
$$;
