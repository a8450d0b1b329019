-- What an error says, with what is behind it: the messages of a stored error and its causes, never a stack.
create function longshore.error_text(p_error jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  c_most constant int := 3;
  -- Node leaves the message empty where none of several addresses could be reached.
  v_text text := coalesce(nullif(p_error ->> 'message', ''), p_error ->> 'thrownCode', p_error ->> 'code', p_error ->> 'name');
begin
  if jsonb_typeof(p_error -> 'errors') = 'array' then
    v_text := v_text || ' (' || (
      select string_agg(longshore.error_text(e.error), '; ' order by e.n)
      from jsonb_array_elements(p_error -> 'errors') with ordinality as e(error, n) where e.n <= c_most) || ')';
  end if;
  if jsonb_typeof(p_error -> 'cause') = 'object' then
    v_text := v_text || ', caused by: ' || longshore.error_text(p_error -> 'cause');
  end if;
  return left(v_text, 4000);
end
$$;
