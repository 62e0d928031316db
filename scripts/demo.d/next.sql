-- true: the lock is yours for ten minutes.  Once more: false.
SELECT shedlock_acquire('send-mail', '10 min');

-- Declares a job: once a day, for two hours at most.  Once more: unchanged.
SELECT shedlock_job('nightly', 'every 1 day', lock_at_most_for => '2 hours');

-- Runs its command, once a day.  Once more: nothing is due.
CALL shedlock_run('nightly', 'ANALYZE');

-- How it is doing, what ran, and how that ended.
SELECT name, state, next_due FROM shedlock_jobs;
SELECT name, outcome, duration FROM shedlock_history;
