\set n (:n + 1) % 30
\set k (:n + 5 * :client_id) % 30
SELECT coalesce(token, 0) AS token FROM shedlock_run_begin('bench start ' || :k, '30 s') \gset
\if :token
SELECT shedlock_run_end('bench start ' || :k, :token);
\endif
