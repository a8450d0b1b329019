-- Refuse a payload that is longer than any producer may send. Asked only where all of them together are.
create function longshore.check_payloads(p_payloads text[]) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from unnest(p_payloads) as p(payload) where octet_length(p.payload) > 4194304) then
    raise exception 'longshore: a payload has at most 4194304 bytes'
      using errcode = 'invalid_parameter_value', hint = 'Store large data elsewhere and enqueue a reference to it.';
  end if;
end
$$;
