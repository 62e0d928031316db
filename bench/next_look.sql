SELECT token FROM shedlock_next(:jobs::text[], '1 min');
