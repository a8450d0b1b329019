-- The caller does a duty of the leader: refused unless it leads. Returns for how many milliseconds it has led without a gap; null for
-- an administrator, who may do each duty by hand and names no holder.
create function longshore.need_leader(p_holder text, p_secret bytea) returns bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_holder is null and pg_has_role(session_user, current_user, 'member') then
    return null;
  /* guard: only-leader */ elsif not longshore.is_leader(p_holder, p_secret) then
    raise exception 'longshore: only the leader does this, and another process leads' using errcode = 'LS006',
      hint = 'Nothing is to be done: workers and relays take the lease by themselves.'; /* end only-leader */
  end if;
  return (select extract(epoch from clock_timestamp() - l.since) * 1000 from longshore.leader l);
end
$$;
