-- The lease has expired when its name comes again.
\set n ((random(0, :names / :clients - 1)) * :clients + :client_id) * :stride
SELECT shedlock_acquire_token('lock-' || :n, '1 ms') AS token \gset
