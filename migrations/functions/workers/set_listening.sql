-- Whether this worker waits for a notification, so that making a job ready must ring it.
-- public: worker
create function longshore.set_listening(p_worker int, p_is_listening boolean, p_secret bytea default null) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  p_worker := longshore.need_worker(p_worker, p_secret);
  update longshore.workers w set listening = p_is_listening where w.id = p_worker;
end
$$;
