-- One tick of a replica with shedlock: three ways to run a job once.
-- :start, :tick and :replica come from the caller.  The demo shows what stands
-- below a "show", to the next blank line.

\set variant with
SELECT to_timestamp(:start + :tick) AS due \gset
SELECT pg_sleep_until(:'due'::timestamptz + random() * interval '150 ms');

\set job send-mail
SELECT clock_timestamp() AS came_at \gset

-- show send-mail
-- send-mail: a lease, which is a lock until a time: for 10 minutes at
-- most, and 700 ms at least, so that a timer a little late is refused.
SELECT shedlock_acquire_token('send-mail', '10 min',
	lock_at_least_for => '700 ms') AS token \gset

\set ran :{?token}
\ir replica-note.sql
\if :ran

-- show send-mail
-- The one that got a token does the work, and then:
SELECT shedlock_release('send-mail', :token);

	UPDATE demo.race SET left_at = clock_timestamp()
	WHERE variant = 'with' AND job = 'send-mail' AND tick = :tick AND replica = :replica;
\endif

\set job refresh-prices
SELECT clock_timestamp() AS came_at \gset

-- show refresh-prices
-- refresh-prices: true for one replica in each second of the clock.
SELECT shedlock_once_every('refresh-prices', '1 second') AS ran \gset

\ir replica-note.sql

\set job write-invoices
SELECT clock_timestamp() AS came_at \gset

-- show write-invoices
-- write-invoices: true for one replica for each time it is due.
SELECT shedlock_once('write-invoices', :'due') AS ran \gset

\ir replica-note.sql
