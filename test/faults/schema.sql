-- The tables of the fault checker's workers; dumped for test/faults/check.

-- Written after shedlock_assert in the same transaction; the number is drawn after it.
CREATE SEQUENCE fault_order;
CREATE TABLE fault_fenced (
	n bigint NOT NULL DEFAULT nextval('fault_order'),
	name text NOT NULL,
	token bigint NOT NULL,
	call text NOT NULL
);

-- Claims of ticks, written in the claiming transaction.  No constraint prevents the same
-- tick twice.
CREATE TABLE fault_claims (
	name text NOT NULL,
	tick timestamptz NOT NULL,
	call text NOT NULL
);

-- Signs of life of guarded commands, each committed by the command itself; name is that of
-- the lock.
CREATE TABLE fault_work (
	name text NOT NULL,
	token bigint,
	call text NOT NULL,
	pid integer NOT NULL,
	at timestamptz NOT NULL,
	tick timestamptz,
	attempt integer
);

-- What a guarded command that succeeds writes last: the end of its run is to commit it.
CREATE TABLE fault_done (
	token bigint,
	call text NOT NULL
);

CREATE PROCEDURE fault_work(of_name text, of_call text, steps integer, pause interval, ends text DEFAULT 'success')
LANGUAGE plpgsql AS $$
BEGIN
	FOR step IN 0 .. steps LOOP
		INSERT INTO fault_work
		VALUES (of_name, shedlock_token(of_name), of_call, pg_backend_pid(), clock_timestamp(),
			nullif(current_setting('shedlock.tick', true), '')::timestamptz,
			nullif(current_setting('shedlock.attempt', true), '')::integer);
		COMMIT;
		PERFORM pg_sleep_for(pause) WHERE step < steps;
	END LOOP;
	CASE ends
		WHEN 'success' THEN
			INSERT INTO fault_done VALUES (shedlock_token(of_name), of_call);
			RETURN;
		WHEN 'failure' THEN RAISE division_by_zero;
		WHEN 'cancel' THEN PERFORM pg_cancel_backend(pg_backend_pid());
		WHEN 'death' THEN PERFORM pg_terminate_backend(pg_backend_pid());
	END CASE;
	PERFORM pg_sleep(5);
END
$$;
