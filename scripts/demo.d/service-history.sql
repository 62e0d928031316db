-- What the history has of the ticks that the killed replica was at.

-- show history
SELECT name, attempt, outcome, locked_by, started_at::time(1), ended_at::time(1)
FROM shedlock_history JOIN (SELECT name, tick FROM shedlock_history WHERE name LIKE 'job-%' AND outcome = 'lost') l
	USING (name, tick)
ORDER BY name, attempt;
