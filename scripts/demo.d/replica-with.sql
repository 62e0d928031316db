-- The same tick with shedlock: the three ways to run a job once.
-- :start, :tick and :replica come from the caller.  The rows with ran = false
-- are there for the demo's count only.

SELECT to_timestamp(:start + :tick) AS due \gset
SELECT pg_sleep_until(:'due'::timestamptz + random() * interval '150 ms');

-- 1. A lease.  It is kept for 700 ms even when the work is done sooner, so
-- that a replica whose timer is late finds it taken.  A refused acquire gives
-- NULL, and \gset leaves the variable unset.
SELECT shedlock_acquire_token('send-mail', '10 min', lock_at_least_for => '700 ms') AS token \gset
\if :{?token}
	INSERT INTO demo.race (variant, job, tick, replica, ran, due)
	VALUES ('with', 'send-mail', :tick, :replica, true, :'due');
	SELECT pg_sleep(0.03);
	SELECT shedlock_release('send-mail', :token);
\else
	INSERT INTO demo.race (variant, job, tick, replica, ran, due)
	VALUES ('with', 'send-mail', :tick, :replica, false, :'due');
\endif

-- 2. Once per period, by the server's clock.
SELECT shedlock_once_every('refresh-prices', '1 second') AS mine \gset
\if :mine
	INSERT INTO demo.race (variant, job, tick, replica, ran, due)
	VALUES ('with', 'refresh-prices', :tick, :replica, true, :'due');
	SELECT pg_sleep(0.03);
\else
	INSERT INTO demo.race (variant, job, tick, replica, ran, due)
	VALUES ('with', 'refresh-prices', :tick, :replica, false, :'due');
\endif

-- 3. Once per scheduled instant, when the timer knows which one it fires for.
SELECT shedlock_once('write-invoices', :'due') AS mine \gset
\if :mine
	INSERT INTO demo.race (variant, job, tick, replica, ran, due)
	VALUES ('with', 'write-invoices', :tick, :replica, true, :'due');
	SELECT pg_sleep(0.03);
\else
	INSERT INTO demo.race (variant, job, tick, replica, ran, due)
	VALUES ('with', 'write-invoices', :tick, :replica, false, :'due');
\endif
