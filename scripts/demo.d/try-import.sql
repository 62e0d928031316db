-- One try of a replica that polls for a lease, until it has it.
\if :{?token}
\else

-- show try
SELECT shedlock_acquire_token('import', '10 min') AS token \gset

	\if :{?token}
		UPDATE demo.takeover SET taken_at = clock_timestamp() WHERE scene = 'lease';
	\else
		UPDATE demo.takeover
		SET refused = refused + 1,
			lock_until = coalesce((SELECT lock_until FROM shedlock_locks WHERE name = 'import'), lock_until)
		WHERE scene = 'lease';
		SELECT pg_sleep(0.1);
	\endif
\endif
