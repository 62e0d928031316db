-- What the history has of the hosts' runs.

-- show history
SELECT attempt, outcome, locked_by, started_at::time(1), ended_at::time(1)
FROM shedlock_history WHERE name = 'nightly-backup' ORDER BY token;
