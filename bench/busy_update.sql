-- its later tries
\set secs 600
UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => :secs), locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'host' WHERE shedlock.name = 'busy' AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP);
