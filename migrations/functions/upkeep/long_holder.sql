-- Who keeps these tables from being locked exclusively: a transaction that holds one of them at both of two looks, p_wait_ms apart. Null: none, so
-- the lock can be had within milliseconds. A transaction that waits for such a lock stops all that come after it, so it is not asked for
-- beside one that stays.
create function longshore.long_holder(p_tables text[], p_wait_ms int) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_tables oid[] := array(select to_regclass('longshore.' || quote_ident(t.name))::oid from unnest(p_tables) as t(name));
  v_first text[];
begin
  v_first := array(
    select l.virtualtransaction from pg_locks l
    where l.locktype = 'relation' and l.relation = any (v_tables) and l.granted and l.mode <> 'SIReadLock'
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.pid is distinct from pg_backend_pid());
  if v_first = '{}' then
    return null;
  end if;
  perform pg_sleep(p_wait_ms / 1000.0);
  return (
    select case when l.pid is null then 'a prepared transaction'
        else concat('connection ', l.pid, ' (', coalesce(nullif(a.application_name, ''), 'no name'), ')') end
      || ' holds ' || l.relation::regclass
      || coalesce(' in a transaction that is open since ' || to_char(a.xact_start at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS') || ' UTC', '')
    from pg_locks l left join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'relation' and l.relation = any (v_tables) and l.granted and l.mode <> 'SIReadLock'
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.virtualtransaction = any (v_first) and l.pid is distinct from pg_backend_pid()
    order by a.xact_start limit 1);
end
$$;
