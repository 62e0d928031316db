SELECT shedlock_acquire_session('bench refused');
