SELECT coalesce(token, 0) AS token, name FROM shedlock_next(:jobs::text[], '30 s', wait => '1 s') \gset
\if :token
SELECT shedlock_run_end(:name, :token);
\endif
