-- The last day on which a job is kept that ends on p_day and is to be kept for p_days days. Up to two weeks it is that very day. For longer
-- it is the end of a week, of a month (above 8 weeks) or of a year (above 2 years): so a table that keeps jobs for ten years has some
-- 70 partitions, each of one day, and no partition is ever split or merged.
-- The only rule of how long the history is kept. Without settings of its own, so that the planner can put it into the query.
create function longshore.kept_until(p_day date, p_days int) returns date
language sql immutable strict parallel safe
return case
  when p_days <= 14 then p_day + p_days
  when p_days <= 56 then p_day + p_days + (7 - extract(isodow from p_day + p_days)::int)
  when p_days <= 730 then (date_trunc('month', (p_day + p_days)::timestamp) + interval '1 month')::date - 1
  else (date_trunc('year', (p_day + p_days)::timestamp) + interval '1 year')::date - 1
end;
