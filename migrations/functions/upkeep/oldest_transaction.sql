-- The start of the oldest transaction that keeps dead rows from being removed; one that has only begun does not. As the owner:
-- other roles may not see the transactions of other users.
-- public: relay, reader
create function longshore.oldest_transaction() returns timestamptz
language sql stable
security definer set search_path = pg_catalog, pg_temp
as $$
  select min(o.since) from (
    select a.xact_start as since from pg_stat_activity a
    where a.datname = current_database() and coalesce(a.backend_xid, a.backend_xmin) is not null
      and a.backend_type <> 'autovacuum worker'
    union all
    select p.prepared from pg_prepared_xacts p where p.database = current_database()
  ) o
$$;
