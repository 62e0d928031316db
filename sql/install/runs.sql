/* Runs */

CREATE PROCEDURE shedlock_run(
	name text,
	command text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL,
	on_busy text DEFAULT 'skip')
LANGUAGE C AS 'MODULE_PATHNAME';

COMMENT ON PROCEDURE shedlock_run(text, text, interval, interval, interval, text) IS
'Runs a command while holding the lock; skips the command if the lock is not free';
