-- Take a partition out of its table, by another name, and leave it to forget_days to drop it. All that read or write the table wait meanwhile,
-- which is for milliseconds: it is not asked for beside a transaction that stays, and no disk is waited for. A crash may undo it.
-- Returns who holds the table, or null when it is done.
create function longshore.detach_day(p_table text, p_partition text, p_wait_ms int) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held_by text;
begin
  /* guard: no-long-wait */ v_held_by := longshore.long_holder(array[p_table, p_partition, p_table || '_default'], p_wait_ms);
  if v_held_by is not null then
    return v_held_by;
  end if; /* end no-long-wait */
  perform set_config('lock_timeout', p_wait_ms || 'ms', true);
  -- The table first: a transaction that uses a partition holds the table as well.
  execute format('lock table only longshore.%I in access exclusive mode', p_table);
  execute format('alter table longshore.%I detach partition longshore.%I', p_table, p_partition);
  execute format('alter table longshore.%I rename to %I', p_partition, p_partition || '_gone');
  perform set_config('synchronous_commit', 'off', true);
  return null;
exception when lock_not_available then
  return format('transactions that use %s follow each other closely', p_table);
end
$$;
