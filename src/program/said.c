/*-------------------------------------------------------------------------
 *
 * said.c
 *	  What was said lately on this host, for --quiet-for.
 *
 * A file for each text, in a folder of the user.  Whatever is wrong with them, the text is
 * said: silence would hide an outage.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "program/program.h"

/*
 * hash - FNV-1a of a text: a name for its file
 */
static uint64_t
hash(const char *text)
{
	uint64_t	value = UINT64_C(14695981039346656037);

	for (const char *at = text; *at != '\0'; at++)
		value = (value ^ (unsigned char) *at) * UINT64_C(1099511628211);
	return value;
}

/*
 * open_file - open the file of a text; -1 if there is none that only this user writes to
 *
 * Anybody may make a folder in /tmp before, or a link.
 */
static int
open_file(const char *text)
{
	const char *tmpdir = getenv("TMPDIR");
	char		folder[PATH_MAX];
	char		name[24];
	struct stat status;
	int			directory;
	int			file = -1;

	(void) snprintf(folder, sizeof(folder), "%s/shedlock-%u", tmpdir ? tmpdir : "/tmp", (unsigned) geteuid());
	(void) mkdir(folder, 0700);
	directory = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (directory < 0)
		return -1;
	(void) snprintf(name, sizeof(name), "%016llx", (unsigned long long) hash(text));
	if (fstat(directory, &status) == 0 && status.st_uid == geteuid() && (status.st_mode & 022) == 0)
		file = openat(directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	(void) close(directory);
	return file;
}

/*
 * WasSaid - was a text said on this host by this user in the last time?  If not, notes it
 *
 * lately: 0 for never.  Of programs that ask at once, one is told that it was not.
 */
bool
WasSaid(const char *text, Usec lately)
{
	int			file = lately > 0 ? open_file(text) : -1;
	struct stat status;
	struct timespec now;
	bool		said = false;

	if (file < 0)
		return false;
	(void) clock_gettime(CLOCK_REALTIME, &now);
	if (flock(file, LOCK_EX) == 0 && fstat(file, &status) == 0)
	{
		/* Its time is later than now if the clock was set back. */
		Usec		age = (Usec) (now.tv_sec - status.st_mtim.tv_sec) * USEC_PER_SEC;

		said = status.st_size > 0 && age > -60 * USEC_PER_SEC && age < lately;
		if (!said && ftruncate(file, 0) == 0)
			(void) !write(file, text, strlen(text));
	}
	(void) close(file);
	return said;
}
