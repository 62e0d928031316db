-- A replica that waits for a session lock.  psql sets :scene.

-- show wait
SELECT shedlock_acquire_session('leader', wait => '5 min') AS mine \gset

\if :mine
	UPDATE demo.takeover SET taken_at = clock_timestamp() WHERE scene = :'scene';
\endif
