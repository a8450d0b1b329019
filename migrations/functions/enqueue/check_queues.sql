-- Refuse a lane of a queue that has none yet, where there are as many queues as there may be. Transactions that make new queues at the same time do not
-- see each other, so there can be some more.
create function longshore.check_queues(p_queue text) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  v_max int := (select s.max_queues from longshore.settings s);
  v_queues int;
begin
  if exists (select from longshore.lanes l where l.queue = p_queue and l.concurrency_key = '') then
    return;
  end if;
  -- From one name to the next, however many lanes each has.
  with recursive known as (
    (select l.queue from longshore.lanes l where l.concurrency_key = '' order by l.queue limit 1)
    union all
    select n.queue from known k
    cross join lateral (
      select l.queue from longshore.lanes l where l.concurrency_key = '' and l.queue > k.queue order by l.queue limit 1
    ) n
  )
  select count(*) into v_queues from (select from known limit v_max) k;
  /* guard: most-queues */ if v_queues >= v_max then
    raise exception 'longshore: there are % queues, which is as many as there may be, so no queue "%" is made', v_queues, left(p_queue, 200)
      using errcode = 'LS011',
        hint = 'Use tags, concurrency keys or priorities to tell jobs apart, or raise the limit with `longshore queues --max`.';
  end if; /* end most-queues */
end
$$;
