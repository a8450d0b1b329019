-- Drain live workers by id or name, or let them take jobs again, all in one step. `has_changed` false: it was so before.
-- public: worker
create function longshore.drain_workers(p_named text[], p_is_drained boolean) returns table (id int, name text, has_changed boolean)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  with named as materialized (
    select w.id, w.name, (w.drained_at is not null) <> p_is_drained as has_changed from longshore.workers w
    where (w.name = any (p_named) or w.id::text = any (p_named)) and w.dead_at is null and w.expires_at > now()
    order by w.id for update
  )
  select n.id, n.name, n.has_changed from named n
  where not n.has_changed or longshore.drain_worker(n.id, p_is_drained);
end
$$;
