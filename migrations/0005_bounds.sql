-- What the functions refuse is refused by the tables as well.

-- 11 bits of priority above 42 bits of time: a double holds it exactly.
alter table longshore.jobs
  add constraint score_in_bounds check (score <= 9007199254740991);

alter table longshore.workers
  add constraint offers_in_bounds check (
    cardinality(tags) > 0 and cardinality(tasks) > 0 and cardinality(queues) > 0
    and not '' = any (tags || tasks || queues)
    and array_position(tags || tasks || queues, null) is null);
