-- The caller says that it is this worker: refused unless it has the worker's secret. Returns the id, or 0, which no worker has, when
-- the row is gone (it was rescued, or has left): then nothing is held any more, and the rest of the call finds that.
create function longshore.need_worker(p_worker int, p_secret bytea) returns int
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_is_it boolean;
begin
  select longshore.fits_secret(w.secret, p_secret) into v_is_it from longshore.workers w where w.id = p_worker;
  if v_is_it then
    return p_worker;
  elsif not v_is_it then
    raise exception 'longshore: this process is not worker %: its secret is another', p_worker using errcode = 'LS005',
      hint = 'A worker acts only for itself. Start one of your own.';
  end if;
  return 0;
end
$$;
