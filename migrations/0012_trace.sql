-- Where a job comes from, for whoever traces: the W3C trace context of its enqueue, as src/runtime/tracing.ts writes it. Null where
-- nobody traces. Not kept in the history: by then the spans are where traces are read.
alter table longshore.jobs
  add trace text check (length(trace) <= 600);
