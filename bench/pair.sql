-- Each client has its own names, so that none is refused.
\set n ((random(0, :names / :clients - 1)) * :clients + :client_id) * :stride
SELECT shedlock_acquire_token('lock-' || :n, '10 min') AS token \gset
SELECT shedlock_release('lock-' || :n, :token);
