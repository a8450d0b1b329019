-- Whether a job that is due in so many milliseconds must be announced on the channel `due`. The upkeep looks for due jobs every 250 ms:
-- it finds later ones by itself.
create function longshore.is_due_soon(p_wait_ms bigint) returns boolean
language sql immutable parallel safe
return p_wait_ms > 0 and p_wait_ms < 300;
