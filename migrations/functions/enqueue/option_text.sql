-- A text among options given as JSON, or null where it is not given. Refuses what is not a text of 1 to p_longest characters,
-- and control characters.
create function longshore.option_text(p_options jsonb, p_name text, p_longest int) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_given jsonb := nullif(p_options -> p_name, 'null');
  v_text text := case when jsonb_typeof(v_given) = 'string' then v_given #>> '{}' end;
begin
  if v_given is null or (length(v_text) between 1 and p_longest and v_text !~ E'[\\x01-\\x1f\\x7f-\\x9f]') then
    return v_text;
  end if;
  raise exception 'longshore: % must be a text of 1 to % characters without control characters, got %',
    p_name, p_longest, left(v_given::text, 200) using errcode = 'invalid_parameter_value';
end
$$;
