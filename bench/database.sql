-- The tables of all cases: shedlock's, the peers' table, the limit's.
CREATE EXTENSION shedlock;

-- A lease of another client that lasts longer than the benchmark.
SELECT shedlock_acquire('busy', '1 week');

-- A job whose last tick has been run, and whose next one is far; and one that makes up, one by
-- one, the minutes of a year.
SELECT shedlock_job('bench not due', '0 3 * * *', 'Europe/Berlin');
SELECT shedlock_again('bench not due');
CALL shedlock_run('bench not due', 'SELECT 1');
SELECT shedlock_job('bench run tick', '* * * * *', 'Europe/Berlin', catch_up => 'all');
UPDATE _shedlock_job SET since = since - interval '1 year' WHERE name = 'bench run tick';

-- The table that ShedLock documents, without shedlock's trigger.
CREATE SCHEMA peer;
CREATE TABLE peer.shedlock (
	name VARCHAR(64) NOT NULL,
	lock_until TIMESTAMP NOT NULL,
	locked_at TIMESTAMP NOT NULL,
	locked_by VARCHAR(255) NOT NULL,
	PRIMARY KEY (name)
);
INSERT INTO peer.shedlock
SELECT 'busy', timezone('utc', now()) + '1 week', timezone('utc', now()), 'somebody else';

-- A lock needs at least two updates of one row.
CREATE TABLE peer.bare (
	name text PRIMARY KEY,
	lock_until timestamp NOT NULL
) WITH (fillfactor = 50);

-- What a command writes into
CREATE TABLE written (n integer);

-- The names of the pairs have been used before: the first use is not measured.
SELECT count(*) FROM generate_series(0, 999) n, shedlock_acquire('lock-' || n, '1 min');
SELECT count(*) FROM generate_series(0, 999) n, shedlock_release('lock-' || n);
INSERT INTO peer.shedlock
SELECT 'lock-' || n, timezone('utc', now()), timezone('utc', now()), 'nobody' FROM generate_series(0, 999) n;
UPDATE peer.shedlock SET locked_by = 'host' WHERE name <> 'busy';
INSERT INTO peer.bare SELECT 'lock-' || n, timezone('utc', now()) FROM generate_series(0, 999) n;
VACUUM ANALYZE;
CHECKPOINT;
