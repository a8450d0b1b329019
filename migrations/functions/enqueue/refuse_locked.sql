-- Refuse to change or cancel a job whose row is locked by another transaction.
create function longshore.refuse_locked(p_job uuid) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'longshore: job % is locked by another transaction for longer than a second', p_job
    using errcode = 'lock_not_available', hint = 'An open transaction has changed or cancelled it: try again when that has ended.';
end
$$;
