-- The second UPDATE must not wait for the disk.  A SET would be a third statement;
-- set_config() costs less than a microsecond.
\set n ((random(0, :names / :clients - 1)) * :clients + :client_id) * :stride
UPDATE bare SET lock_until = clock_timestamp() WHERE name = 'lock-' || :n;
UPDATE bare SET lock_until = clock_timestamp() WHERE name = 'lock-' || :n RETURNING set_config('synchronous_commit', 'off', true);
