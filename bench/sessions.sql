-- Microseconds a lock in a session that holds many of them.  names: how many locks there
-- are.  A line for each measure: its name, with all of them held at a time, with ten.
-- The server must not wait for the disk here.
CREATE TEMP TABLE measured (n serial, held int, measure text, us float);

CREATE PROCEDURE pg_temp.step(held int, measure text, call text, names text[])
LANGUAGE plpgsql AS $$
DECLARE
	start timestamptz := clock_timestamp();
	done int;
BEGIN
	EXECUTE format('SELECT count(*) FILTER (WHERE %s) FROM unnest($1) name', call) INTO done USING names;
	COMMIT;
	IF done <> cardinality(names) THEN
		RAISE '% % of %', measure, done, cardinality(names);
	END IF;
	INSERT INTO measured (held, measure, us)
	SELECT step.held, step.measure, extract(epoch FROM clock_timestamp() - start) * 1e6 / done;
	COMMIT;
END $$;

-- The same names each time, so that what the server and the process remember of them is
-- the same.
CREATE PROCEDURE pg_temp.measure(names int, held int)
LANGUAGE plpgsql AS $$
DECLARE
	here text[];
	reversed text[];
	mixed text[];
	start timestamptz;
BEGIN
	FOR low IN 1..names BY held LOOP
		SELECT array_agg('session-' || n ORDER BY n), array_agg('session-' || n ORDER BY n DESC),
			   array_agg('session-' || n ORDER BY hashint4(n))
		INTO here, reversed, mixed FROM generate_series(low, low + held - 1) n;
		CALL pg_temp.step(held, 'acquire', 'shedlock_acquire_session(name, ''1 h'')', here);
		CALL pg_temp.step(held, 'extend', 'shedlock_extend(name)', here);
		CALL pg_temp.step(held, 'release, in order', 'shedlock_release(name)', here);
		CALL pg_temp.step(held, 'acquire without limit', 'shedlock_acquire_session(name)', here);
		CALL pg_temp.step(held, 'release, in reverse order', 'shedlock_release(name)', reversed);
		CALL pg_temp.step(held, 'acquire', 'shedlock_acquire_session(name, ''1 h'')', here);
		CALL pg_temp.step(held, 'release, in random order', 'shedlock_release(name)', mixed);

		start := clock_timestamp();
		BEGIN
			PERFORM count(*) FROM unnest(here) name WHERE shedlock_acquire_session(name, '1 h');
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
		END;
		COMMIT;
		INSERT INTO measured (held, measure, us)
		SELECT measure.held, 'acquire, rolled back', extract(epoch FROM clock_timestamp() - start) * 1e6 / measure.held;

		CALL pg_temp.step(held, 'acquire', 'shedlock_acquire_session(name, ''1 h'')', here);
		start := clock_timestamp();
		PERFORM pg_advisory_unlock_all();
		COMMIT;
		INSERT INTO measured (held, measure, us)
		SELECT measure.held, 'reset', extract(epoch FROM clock_timestamp() - start) * 1e6 / measure.held;
		COMMIT;
	END LOOP;
END $$;

-- All names have a row.
CALL pg_temp.measure(:names, :names);
TRUNCATE measured;
VACUUM shedlock;

CALL pg_temp.measure(:names, 10);
CALL pg_temp.measure(:names, :names);
SELECT 'us a lock, ' || measure, avg(us) FILTER (WHERE held = :names), avg(us) FILTER (WHERE held = 10)
FROM measured GROUP BY measure ORDER BY min(n);
