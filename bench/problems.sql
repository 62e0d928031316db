SELECT * FROM shedlock_problems;
