/*
 * skew.c - a clock that can be moved, to be preloaded into a program
 *
 * A program that asks for the time of day gets it with an offset added.  The
 * offset is read each time from the file SKEW_FILE: a number of microseconds,
 * 64 bits in the machine's byte order.  Writing the file moves the clock of the
 * running server, as an administrator or a time daemon would.  Clocks that count
 * from the machine's start are not changed, nor are timers and sleeps.
 *
 * If SKEW_STANDS is set, the clock stands still at that number.  If SKEW_BOOTTIME is set,
 * CLOCK_BOOTTIME is moved instead, as when the system was suspended.  If SKEW_CHILDREN is set, those clocks are moved that the processes see
 * which the program forks, not its own.
 *
 * It uses system calls, not the library's functions, because everything must
 * work in signal handlers.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset;
static int	boottime;
static int	stands;
static pid_t unmoved = 0;

/* Without the file a test would pass with a clock that never moves. */
__attribute__((constructor))
static void
map_offset(void)
{
	const char *path = getenv("SKEW_FILE");
	int			fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void	   *map = MAP_FAILED;

	if (fd >= 0)
	{
		map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (map == MAP_FAILED)
	{
		perror("skew.so: SKEW_FILE");
		_exit(1);
	}
	offset = map;
	boottime = getenv("SKEW_BOOTTIME") != NULL;
	stands = getenv("SKEW_STANDS") != NULL;
	if (getenv("SKEW_CHILDREN"))
		unmoved = getpid();
}

static int
is_moved(clockid_t clock)
{
	if (getpid() == unmoved)
		return 0;
	if (boottime)
		return clock == CLOCK_BOOTTIME;
	return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			result = (int) syscall(SYS_clock_gettime, clock, now);

	if (result == 0 && is_moved(clock))
	{
		int64_t		us = *offset;
		int64_t		ns;

		if (stands)
			now->tv_sec = now->tv_nsec = 0;
		ns = now->tv_nsec + us % 1000000 * 1000;

		now->tv_sec += us / 1000000;
		if (ns < 0 || ns >= 1000000000)
		{
			now->tv_sec += ns < 0 ? -1 : 1;
			ns += ns < 0 ? 1000000000 : -1000000000;
		}
		now->tv_nsec = ns;
	}
	return result;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec ts;

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	now->tv_sec = ts.tv_sec;
	now->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *now)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (now)
		*now = ts.tv_sec;
	return ts.tv_sec;
}
