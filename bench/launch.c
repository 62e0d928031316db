/*
 * launch.c - how long a command takes, and how much of the processors
 *
 *	launch TOGETHER TURNS COMMAND [ARGUMENT]...
 *
 * Starts the command TOGETHER times at the same instant, as often as there are turns,
 * one after the other.  Prints a line for each process: its exit status, milliseconds
 * from that instant to its end, milliseconds of CPU of the process and its children.
 * What the command writes is dropped.
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "client.h"

#define TOGETHER_MAX		100

static double
to_ms(struct timeval t)
{
	return (double) t.tv_sec * 1e3 + (double) t.tv_usec / 1e3;
}

/* Starts a process that becomes the command as soon as all ends for writing of the pipe
 * are closed. */
static pid_t
start(char **command, const int pipe_ends[2])
{
	pid_t		pid = fork();
	char		byte;
	int			null;

	if (pid < 0)
		die("fork", "no process");
	if (pid > 0)
		return pid;
	close(pipe_ends[1]);
	null = open("/dev/null", O_RDWR);
	if (null < 0 || read(pipe_ends[0], &byte, 1) != 0)
		_exit(126);
	close(pipe_ends[0]);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	close(null);
	execvp(command[0], command);
	_exit(127);
}

static void
turn(int together, char **command)
{
	pid_t		pids[TOGETHER_MAX];
	int			ends[2];
	double		begun;

	if (pipe(ends) != 0)
		die("pipe", "none");
	for (int i = 0; i < together; i++)
		pids[i] = start(command, ends);
	close(ends[0]);
	if (together > 1)
		usleep(50000);
	begun = now_ms();
	close(ends[1]);

	for (int i = 0; i < together; i++)
	{
		struct rusage use;
		int			status;
		pid_t		pid = wait4(-1, &status, 0, &use);
		double		ended = now_ms();
		bool		mine = false;

		for (int k = 0; k < together; k++)
			mine = mine || pids[k] == pid;
		if (!mine)
			die("wait4", "not a child of this turn");
		printf("%d\t%.3f\t%.3f\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
			   ended - begun, to_ms(use.ru_utime) + to_ms(use.ru_stime));
	}
}

int
main(int argc, char **argv)
{
	int			together = argc > 3 ? atoi(argv[1]) : 0;

	if (together < 1 || together > TOGETHER_MAX)
		die("usage", "launch TOGETHER TURNS COMMAND [ARGUMENT]...");
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	for (int left = atoi(argv[2]); left > 0; left--)
		turn(together, argv + 3);
	return 0;
}
