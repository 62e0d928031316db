SELECT shedlock_acquire_session('bench session');
SELECT shedlock_release('bench session');
