/*
 * failmalloc.c - malloc() that fails when a test wants it, to be preloaded into a server
 *
 * The file FAILMALLOC_FILE has three numbers of 32 bits in the machine's byte order: a
 * process, a size in bytes, and a count.  Each malloc() of that process for that size or
 * more counts down, and the one that finds zero fails; a negative count fails none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct
{
	int32_t		pid;
	int32_t		size;
	int32_t		count;
} Control;

static volatile Control *control = NULL;

/* glibc's own */
extern void *__libc_malloc(size_t size);

/* Without the file a test would pass with memory that never ends. */
__attribute__((constructor))
static void
map_control(void)
{
	const char *path = getenv("FAILMALLOC_FILE");
	int			fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void	   *map = MAP_FAILED;

	if (fd >= 0)
	{
		map = mmap(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (map == MAP_FAILED)
	{
		perror("failmalloc.so: FAILMALLOC_FILE");
		_exit(1);
	}
	control = map;
}

void *
malloc(size_t size)
{
	if (control && control->pid == getpid() && size >= (size_t) control->size &&
		control->count >= 0 && control->count-- == 0)
	{
		errno = ENOMEM;
		return NULL;
	}
	return __libc_malloc(size);
}
