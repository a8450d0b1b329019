-- A page of those rows of a table that fulfil a condition: from a block on, at most 1000 of at most 128 blocks, in the order in which they stand.
-- next_block: where the next page begins; null at the end of the table.
create function longshore.page_rows(
  p_table text, p_condition text, p_from bigint, out rows tid[], out next_block bigint
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- Only these blocks, whatever the statistics say.
set enable_seqscan = off
set enable_indexscan = off
set enable_bitmapscan = off
as $$
declare
  c_blocks constant int := 128;
  c_rows constant int := 1000;
  v_all bigint := pg_relation_size(to_regclass('longshore.' || quote_ident(p_table))) / current_setting('block_size')::int;
begin
  if p_from >= v_all then
    rows := '{}';
    return;
  end if;
  execute format(
    'select coalesce(array_agg(r.ctid), ''{}'') from (
       select f.ctid from longshore.%I f where f.ctid >= ''(%s,0)'' and f.ctid < ''(%s,0)'' and %s limit %s) r',
    p_table, p_from, p_from + c_blocks, p_condition, c_rows) into rows;
  -- A block holds fewer rows than a page, so this moves on.
  next_block := case when cardinality(rows) < c_rows then p_from + c_blocks
    else greatest(p_from, ((rows[c_rows]::text::point)[0])::bigint) end;
end
$$;
