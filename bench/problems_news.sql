SELECT * FROM shedlock_news();
