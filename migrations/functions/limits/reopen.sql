-- Open limits and ring for what waited under them.
create function longshore.reopen(p_limits int[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform /* guard: ring */ longshore.ring_limits(longshore.open_limits(p_limits)) /* end ring */;
end
$$;
