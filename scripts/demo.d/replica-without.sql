-- One tick of a replica without shedlock: its timer fires, it does the work.
-- :start, :tick and :replica come from the caller.

SELECT to_timestamp(:start + :tick) AS due \gset
SELECT pg_sleep_until(:'due'::timestamptz + random() * interval '150 ms');

INSERT INTO demo.race (variant, job, tick, replica, ran, due)
VALUES ('without', 'send-mail', :tick, :replica, true, :'due');
SELECT pg_sleep(0.03);

INSERT INTO demo.race (variant, job, tick, replica, ran, due)
VALUES ('without', 'refresh-prices', :tick, :replica, true, :'due');
SELECT pg_sleep(0.03);

INSERT INTO demo.race (variant, job, tick, replica, ran, due)
VALUES ('without', 'write-invoices', :tick, :replica, true, :'due');
SELECT pg_sleep(0.03);
