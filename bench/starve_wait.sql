SELECT coalesce(token, 0) AS token FROM shedlock_run_begin('starve ' || :client_id % 30, '30 s', wait => '30 s') \gset
\if :token
SELECT shedlock_run_end('starve ' || :client_id % 30, :token);
\endif
