/*
 * coverage.h
 *		Makes a build for coverage count what a process does that ends by _exit() or by a
 *		signal of its own.
 *
 * The processes of the program shedlock do: see COVERAGE in scripts/test, which has
 * each file include this first.  One that ends because it has no descriptor left needs
 * one for its counts, and the files of counts may be larger than a test lets a process
 * write.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

extern void __gcov_dump(void);
extern void __gcov_reset(void);

static void __attribute__((destructor, unused))
lift_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0)
	{
		limit.rlim_cur = limit.rlim_max;
		(void) setrlimit(RLIMIT_FSIZE, &limit);
	}
}

#define exit(status)	(close(STDIN_FILENO), exit(status))
#define _exit(status)	(close(STDIN_FILENO), lift_limit(), __gcov_dump(), _exit(status))
#define execvp(file, arguments)	(lift_limit(), execvp(file, arguments))
#define raise(number)	(__gcov_dump(), __gcov_reset(), raise(number))
