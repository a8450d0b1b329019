-- Open limits of which slots were freed, and ring for what waits under them.
create function longshore.reopen(p_limits int[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.open_limits(p_limits);
  /* guard: ring */ perform longshore.ring_limits(p_limits); /* end ring */
end
$$;
