/*
 * planted_program.c
 *		A program with faults that the tools of scripts/test hard/program must find.
 *
 * The fault is that of its argument.  It happens in a child that ends by _exit(), as the
 * guardian of shedlock does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Reads memory that was freed. */
static int
read_freed(void)
{
	volatile int *number = malloc(sizeof(int));

	*number = 42;
	free((void *) number);
	return *number;
}

/* Branches on memory that was never written. */
static int
read_unset(void)
{
	volatile int *number = malloc(sizeof(int));
	int			answer = *number > 42 ? 1 : 0;

	free((void *) number);
	return answer;
}

/* Shifts by more bits than an int has. */
static int
overflow(volatile int bits)
{
	return 1 << bits;
}

int
main(int argc, char **argv)
{
	const char *fault = argc > 1 ? argv[1] : "";
	int			answer = 0;
	pid_t		pid = fork();

	if (pid > 0)
		return waitpid(pid, NULL, 0) == pid ? 0 : 1;
	if (strcmp(fault, "freed") == 0)
		answer = read_freed();
	else if (strcmp(fault, "unset") == 0)
		answer = read_unset();
	else if (strcmp(fault, "overflow") == 0)
		answer = overflow(40);
	_exit(answer & 1);
}
