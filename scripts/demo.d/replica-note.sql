-- Notes that a replica came to a job, and does the work if it may.  The rows
-- with ran = false are there for the demo's count only.
INSERT INTO demo.race (variant, job, tick, replica, ran, came_at)
VALUES (:'variant', :'job', :tick, :replica, :'ran', :'came_at');
\if :ran
	SELECT pg_sleep(0.03);
\endif
