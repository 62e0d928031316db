SELECT shedlock_acquire('busy', '10 min');
