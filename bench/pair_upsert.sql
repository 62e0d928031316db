-- ShedLock's acquire when its process does not know yet that the row exists, and its unlock
\set n ((random(0, :names / :clients - 1)) * :clients + :client_id) * :stride
\set secs 600
\set least 0
INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('lock-' || :n, timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => :secs), timezone('utc', CURRENT_TIMESTAMP), 'host') ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => :secs), locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'host' WHERE shedlock.name = 'lock-' || :n AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP);
UPDATE shedlock SET lock_until = CASE WHEN locked_at + make_interval(secs => :least) > timezone('utc', CURRENT_TIMESTAMP) THEN locked_at + make_interval(secs => :least) ELSE timezone('utc', CURRENT_TIMESTAMP) END WHERE name = 'lock-' || :n AND locked_by = 'host';
