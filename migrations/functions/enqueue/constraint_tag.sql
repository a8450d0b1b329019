-- The canonical text of constraints ({"gpu": "a100"}), as src/job/constraints.ts makes it: `c:` and the `key=value` pairs
-- sorted by key, joined by commas; values percent-encoded where they hold , = % or anything but printable ASCII.
create function longshore.constraint_tag(p_constraints jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_given record;
  v_value text;
  v_pairs text[] := '{}';
  v_tag text;
begin
  if p_constraints is null then
    return 'c:';
  end if;
  if jsonb_typeof(p_constraints) <> 'object' then
    raise exception 'longshore: constraints must be an object like {"gpu": "a100"}, got %', left(p_constraints::text, 200)
      using errcode = 'LS001';
  end if;
  for v_given in select e.key, e.value from jsonb_each(p_constraints) e order by e.key collate "C" loop
    if v_given.key !~ '^[a-z][a-z0-9_]{0,39}$' then
      raise exception 'longshore: constraints: "%" is not a valid key', left(v_given.key, 200)
        using errcode = 'LS001', hint = 'Use at most 40 of a-z, 0-9 and _, starting with a letter.';
    end if;
    v_value := v_given.value #>> '{}';
    if jsonb_typeof(v_given.value) <> 'string' or length(v_value) not between 1 and 100 then
      raise exception 'longshore: constraints.% must be a text of 1 to 100 characters, got %',
        v_given.key, left(v_given.value::text, 200) using errcode = 'LS001';
    end if;
    if v_value !~ '^[ -$&-+.-<>-~-]+$' then
      select string_agg(
        case when c.letter ~ '[ -$&-+.-<>-~-]' then c.letter
        else regexp_replace(upper(encode(convert_to(c.letter, 'UTF8'), 'hex')), '(..)', E'%\\1', 'g') end,
        '' order by c.no)
      into v_value
      from string_to_table(v_value, null) with ordinality as c(letter, no);
    end if;
    v_pairs := v_pairs || (v_given.key || '=' || v_value);
  end loop;
  if cardinality(v_pairs) > 3 then
    raise exception 'longshore: constraints with % keys, at most 3 are possible: %',
      cardinality(v_pairs), left(p_constraints::text, 200) using errcode = 'LS001';
  end if;
  v_tag := 'c:' || array_to_string(v_pairs, ',');
  if length(v_tag) > 500 then
    raise exception 'longshore: constraints of % characters when written as a tag, at most 500 are possible: %',
      length(v_tag), left(v_tag, 200) using errcode = 'LS001', hint = 'Use shorter values, in ASCII where you can.';
  end if;
  return v_tag;
end
$$;
