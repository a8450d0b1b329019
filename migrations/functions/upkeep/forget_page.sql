-- The next page of a pass through a partition: rows of the default partition that are kept until before p_before only; of another one, which
-- goes as a whole, the jobs that groups and edges know of. The pass is done when it has come to the end without passing over a row.
-- Returns why it could not go on, or null.
create function longshore.forget_page(p_table text, p_partition text, p_before date, p_wait_ms int default null) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_is_history boolean := p_table = 'finished_jobs';
  v_is_whole boolean := p_partition <> p_table || '_default';
  v_key text := replace(pg_get_partkeydef(to_regclass('longshore.' || p_table)), 'RANGE ', '');
  v_pass longshore.history_passes;
  v_rows tid[];
  v_next bigint;
  v_passed_over int := 0;
  v_is_more boolean := false;
begin
  if v_is_whole and not exists (select from longshore.history_passes s where s.partition = p_partition) then
    -- A transaction that is still writing to it is waited for, as its rows are not to be seen yet. Since then no transaction begins to:
    -- the day of a job that ends is after today. This stops no other transaction, nor does vacuum tidy up what is dropped soon.
    begin
      perform set_config('lock_timeout', p_wait_ms || 'ms', true);
      /* guard: writers-gone */ execute format('lock table only longshore.%I in share mode', p_partition); /* end writers-gone */
      execute format('alter table longshore.%I set (autovacuum_enabled = off, toast.autovacuum_enabled = off)', p_partition);
    exception when lock_not_available then
      return format('a transaction writes to %s, or vacuum is at work there', p_partition);
    end;
    insert into longshore.history_passes (partition, before) values (p_partition, p_before) on conflict do nothing;
    return null;
  end if;
  select * into v_pass from longshore.history_passes s where s.partition = p_partition for update skip locked;
  if not found then
    return 'another process is at it';
  end if;
  select r.rows, r.next_block into v_rows, v_next
  from longshore.page_rows(p_partition,
    case when v_is_whole then 'f.group_id is not null' else format('%s < %L::date', v_key, to_char(p_before, 'YYYY-MM-DD')) end, v_pass.next_block) r;
  if v_rows <> '{}' and v_is_history then
    select l.passed_over, l.is_more into v_passed_over, v_is_more from longshore.forget_links(p_partition, v_rows) l;
  elsif v_rows <> '{}' then
    execute format('delete from longshore.%I f where f.ctid = any ($1) and %s < $2', p_partition, v_key) using v_rows, p_before;
  end if;
  if v_is_more then
    return null;
  end if;
  v_pass.passed_over := v_pass.passed_over + v_passed_over;
  if v_next is null and v_pass.passed_over > 0 then
    update longshore.history_passes s set next_block = 0, passed_over = 0 where s.partition = p_partition;
    return format('transactions hold groups of %s jobs of %s', v_pass.passed_over, p_partition);
  end if;
  update longshore.history_passes s
  set passed_over = v_pass.passed_over, is_done = v_next is null,
    -- Not at the same rows again.
    next_block = case when v_next is null then s.next_block else greatest(v_next, s.next_block + case when v_passed_over > 0 then 1 else 0 end) end
  where s.partition = p_partition;
  return null;
end
$$;
