-- Since when the oldest transaction is open of those that keep what others delete; whoever has only begun does not. As the owner:
-- others are not told of the transactions of other users.
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
