-- A hundred locks of which one is free, a thousand of which none is, and a queue.
SELECT count(*) FROM shedlock_acquire_any(shedlock_permits('any', 100), 100, '1 week');
SELECT shedlock_release('any/100');
SELECT count(*) FROM shedlock_acquire_any(shedlock_permits('none', 1000), 1000, '1 week');
SELECT count(*) FROM shedlock_acquire_any(shedlock_permits('all', 1000), 1000, '1 week') a, shedlock_release(a.name);
CREATE TABLE queue (id integer PRIMARY KEY, claimed_until timestamptz NOT NULL DEFAULT '-infinity', done boolean NOT NULL DEFAULT false)
	WITH (fillfactor = 70);
INSERT INTO queue SELECT generate_series(0, 9999);
CREATE TABLE rows (id integer PRIMARY KEY, n integer NOT NULL) WITH (fillfactor = 50);
INSERT INTO rows SELECT n, 0 FROM generate_series(0, 999) n;
SELECT count(*) FROM generate_series(0, 9) n, shedlock_acquire_any(
	(SELECT array_agg('job-' || i) FROM generate_series(n * 1000, n * 1000 + 999) i), 1000, '1 week') a, shedlock_release(a.name);
VACUUM ANALYZE;
CHECKPOINT;
