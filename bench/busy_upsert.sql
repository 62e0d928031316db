-- ShedLock's first try in a process, with the server's time
\set secs 600
INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('busy', timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => :secs), timezone('utc', CURRENT_TIMESTAMP), 'host') ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => :secs), locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'host' WHERE shedlock.name = 'busy' AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP);
