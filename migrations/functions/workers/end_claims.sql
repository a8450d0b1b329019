-- Break off the claims of a worker that is taken for dead and does not read their answers. A claim by another user, whose
-- backend may not be ended, is left alone.
create function longshore.end_claims(p_worker int) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_terminate_backend(a.pid)
  from pg_locks l
  join pg_stat_activity a on a.pid = l.pid /* guard: only-unread */ and a.wait_event = 'ClientWrite' /* end only-unread */
  where l.locktype = 'advisory' and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and l.classid = (hashtext('longshore.worker')::bigint & 4294967295)::oid and l.objid = p_worker::oid
    and l.objsubid = 2 and l.mode = 'ShareLock' and l.granted;
exception when insufficient_privilege then
  null;
end
$$;
