-- true: the lock is yours for ten minutes.  Once more: false.
SELECT shedlock_acquire('send-mail', '10 min');

-- Runs the command under a lock, once a day.  Once more: skipped.
CALL shedlock_run('nightly', 'ANALYZE', '2 hours', once_every => '1 day');

-- What ran, and how it ended.
SELECT name, outcome, duration FROM shedlock_history;
