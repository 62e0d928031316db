-- ShedLock's acquire of a row that it knows to exist, and its unlock
\set n ((random(0, :names / :clients - 1)) * :clients + :client_id) * :stride
\set secs 600
\set least 0
UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => :secs), locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'host' WHERE shedlock.name = 'lock-' || :n AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP);
UPDATE shedlock SET lock_until = CASE WHEN locked_at + make_interval(secs => :least) > timezone('utc', CURRENT_TIMESTAMP) THEN locked_at + make_interval(secs => :least) ELSE timezone('utc', CURRENT_TIMESTAMP) END WHERE name = 'lock-' || :n AND locked_by = 'host';
