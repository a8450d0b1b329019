-- Refuses a statement whose caller is not in the transaction any more, or never was in one: p_mark is in the setting longshore_tx.marks
-- from the moment a caller put it there (`set_config(…, true)`) until that transaction ends. Outside of one it is gone at once.
-- public: producer
create function longshore.need_transaction(p_mark text) returns boolean
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  if strpos(coalesce(current_setting('longshore_tx.marks', true), ''), p_mark) > 0 then
    return true;
  end if;
  raise exception 'longshore: `tx` is in no transaction, or its transaction ended before this statement was sent: nothing was changed'
    using errcode = 'LS009', hint = 'Wait for `begin` before the call, for the call before `commit`, and give the one connection of that transaction.';
end
$$;
