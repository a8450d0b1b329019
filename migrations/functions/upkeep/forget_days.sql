-- One short step of letting go the days before p_before of a table with a partition a day, in the transaction of the caller. What stays in between is in
-- Postgres, so another process goes on. First a table that was detached is dropped; then such rows of the default partition go, a page of
-- them; then the oldest partition: what groups and edges know of its jobs, a page at a time, and at last the partition itself.
-- Not is_done: there is more to do. held_by: not now, as another transaction is in the way. behind_days: for how long the oldest partition should
-- have been gone.
create function longshore.forget_days(
  p_table text, p_before date, p_wait_ms int, out is_done boolean, out held_by text, out behind_days int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_default text := p_table || '_default';
  v_expired text[];
  v_name text;
begin
  is_done := false;
  v_expired := array(
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = to_regclass('longshore.' || p_table) and c.relname ~ ('^' || p_table || '_[0-9]{8}$')
      and to_date(right(c.relname, 8), 'YYYYMMDD') < p_before
    order by c.relname);
  behind_days := coalesce(p_before - to_date(right(v_expired[1], 8), 'YYYYMMDD') - 1, 0);
  -- A clock that went back: what was begun is not to go yet, and may get more rows until it is.
  /* guard: begin-anew */ delete from longshore.history_passes s
  where s.partition ~ ('^' || p_table || '_[0-9]{8}$') and s.partition <> all (v_expired); /* end begin-anew */

  select c.relname into v_name from pg_class c
  where c.relnamespace = (select s.relnamespace from pg_class s where s.oid = to_regclass('longshore.settings'))
    and c.relkind = 'r' and not c.relispartition and c.relname ~ ('^' || p_table || '_[0-9]{8}_gone$')
  limit 1;
  if found then
    begin
      perform set_config('lock_timeout', p_wait_ms || 'ms', true);
      execute format('drop table longshore.%I', v_name);
      return;
    exception when lock_not_available then
      held_by := 'a transaction holds ' || v_name;
    end;
  end if;

  if pg_relation_size(to_regclass('longshore.' || v_default)) > 0 then
    insert into longshore.history_passes as s (partition, before) values (v_default, p_before)
    on conflict (partition) do update set before = excluded.before, next_block = 0, passed_over = 0, is_done = false
    where s.before <> excluded.before;
    if exists (select from longshore.history_passes s where s.partition = v_default and not s.is_done) then
      held_by := coalesce(longshore.forget_page(p_table, v_default, p_before), held_by);
      if held_by is null then
        return;
      end if;
    end if;
  end if;

  v_name := v_expired[1];
  if v_name is null then
    is_done := held_by is null;
    return;
  end if;
  if p_table = 'finished_jobs'
    /* guard: links-first */ and not exists (select from longshore.history_passes s where s.partition = v_name and s.is_done) /* end links-first */
  then
    held_by := coalesce(longshore.forget_page(p_table, v_name, p_before, p_wait_ms), held_by);
    return;
  end if;
  held_by := coalesce(longshore.detach_day(p_table, v_name, p_wait_ms), held_by);
  if not exists (select from pg_inherits i where i.inhrelid = to_regclass('longshore.' || v_name)) then
    delete from longshore.history_passes s where s.partition = v_name;
  end if;
end
$$;
