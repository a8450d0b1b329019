-- Jobs of a lane have become ready, none of them before this place in the order: direct claims find them, and a worker that sleeps is
-- woken.
create function longshore.announce_ready(p_lane int, p_score bigint, p_job uuid, p_jobs bigint) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.note_head(p_lane, p_score, p_job);
  /* guard: wake-worker */ perform longshore.ring(p_lane, p_jobs, p_score); /* end wake-worker */
end
$$;
