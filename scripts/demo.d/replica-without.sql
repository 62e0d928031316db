-- One tick of a replica without shedlock: its timer fires, it does the work.
-- :start, :tick and :replica come from the caller.

\set variant without
\set ran true
SELECT to_timestamp(:start + :tick) AS due \gset
SELECT pg_sleep_until(:'due'::timestamptz + random() * interval '150 ms');
SELECT clock_timestamp() AS came_at \gset

\set job send-mail
\ir replica-note.sql
\set job refresh-prices
\ir replica-note.sql
\set job write-invoices
\ir replica-note.sql
