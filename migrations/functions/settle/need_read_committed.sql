-- A transaction that ends jobs must read afresh after each lock: an older snapshot does not show jobs that have begun to wait.
create function longshore.need_read_committed(p_what text) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'longshore: this transaction is %, which cannot %', current_setting('transaction_isolation'), p_what
      using errcode = 'invalid_transaction_state', hint = 'Do it in a READ COMMITTED transaction, or outside of any.';
  end if;
end
$$;
