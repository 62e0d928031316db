SELECT token FROM shedlock_run_begin('bench run tick', '1 min') \gset
SELECT shedlock_run_end('bench run tick', :token);
