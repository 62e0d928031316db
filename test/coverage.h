/*
 * coverage.h
 *		Makes a build for coverage count what a process does that ends by _exit().
 *
 * The processes of the program shedlock do: see COVERAGE in scripts/test, which has
 * each file include this first.
 */
#include <unistd.h>

extern void __gcov_dump(void);

#define _exit(status)	(__gcov_dump(), _exit(status))
