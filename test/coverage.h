/*
 * coverage.h
 *		Makes a build for coverage count what a process does that ends by _exit() or by a
 *		signal of its own.
 *
 * The processes of the program shedlock do: see COVERAGE in scripts/test, which has
 * each file include this first.  One that ends because it has no descriptor left needs
 * one for its counts.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

extern void __gcov_dump(void);
extern void __gcov_reset(void);

#define exit(status)	(close(STDIN_FILENO), exit(status))
#define _exit(status)	(close(STDIN_FILENO), __gcov_dump(), _exit(status))
#define raise(number)	(__gcov_dump(), __gcov_reset(), raise(number))
