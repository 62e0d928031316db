/*-------------------------------------------------------------------------
 *
 * command.c
 *	  The text of a command: what the guard refuses to run, and errors in it.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/job.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"

/*
 * ShedlockCheckCommand - complain about what a guarded command cannot be
 */
void
ShedlockCheckCommand(List *parsetree_list)
{
	ListCell   *lc;

	if (parsetree_list == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("command is empty")));

	foreach(lc, parsetree_list)
	{
		Node	   *stmt = lfirst_node(RawStmt, lc)->stmt;

		if (IsA(stmt, TransactionStmt))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("%s cannot be used in a guarded command",
							GetCommandTagName(CreateCommandTag(stmt))),
					 errhint("shedlock_run commits the command by itself.  For commits in between, CALL a procedure that commits.")));

		/*
		 * The client of a CALL does not expect to take part in a COPY.
		 * pg_cron's launcher would even wait for ever.
		 */
		if (IsA(stmt, CopyStmt) && ((CopyStmt *) stmt)->filename == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("%s cannot be used in a guarded command",
							((CopyStmt *) stmt)->is_from ? "COPY FROM STDIN" : "COPY TO STDOUT"),
					 errhint("COPY from or to a file or a program on the server can.")));
	}
}

/*
 * position_in_command - have an error point into the command
 *
 * An error context callback.  Without it the position would be taken for one
 * in the query that called us.
 */
static void
position_in_command(void *arg)
{
	int			pos = geterrposition();

	if (pos > 0)
	{
		errposition(0);
		internalerrposition(pos);
		internalerrquery((const char *) arg);
	}
}

/*
 * ShedlockPushCommand - from now on errors point into the command
 */
void
ShedlockPushCommand(ErrorContextCallback *errcallback, char *command)
{
	errcallback->callback = position_in_command;
	errcallback->arg = command;
	errcallback->previous = error_context_stack;
	error_context_stack = errcallback;
}
