-- The leader's part of keeping lane_heads short: lanes with a key that claims are told of, and that have no ready job. Claims take them away where they meet them; those
-- whose jobs go through Redis, or were cancelled, no claim meets. Looks at a page of rows behind p_after; returns the last of them, or null at the end.
-- public: worker, relay
create function longshore.forget_heads(p_after bigint, p_holder text default null, p_secret bytea default null) returns bigint
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
-- A page of rows, and of each lane the best job, by their keys, however many there are.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  c_page constant int := 500;
  v_page bigint[];
  v_lanes int[];
begin
  perform longshore.need_leader(p_holder, p_secret);
  select array_agg(h.id order by h.id), array_agg(distinct h.lane) filter (where h.closed_by is null and not exists (
    select from longshore.jobs j where j.lane = h.lane and j.state = 'ready' offset 0))
  into v_page, v_lanes
  from (
    select h.id, h.lane, h.closed_by from longshore.lane_heads h where h.id > p_after order by h.id limit c_page
  ) h;
  begin
    perform longshore.tidy_heads(v_lanes, '{}') where v_lanes is not null;
  exception when lock_not_available then
    return p_after;
  end;
  return v_page[c_page];
end
$$;
