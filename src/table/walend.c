/*-------------------------------------------------------------------------
 *
 * walend.c
 *	  How a WAL timeline ended.
 *
 * A server that shuts down writes a shutdown checkpoint when all its other processes are
 * gone.  If that is the last record of a timeline, no process can be left that began before,
 * wherever it ran.  The server may be started again, and go on with the timeline elsewhere.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/timeline.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "access/xlogutils.h"
#include "catalog/pg_control.h"
#include "table/table.h"
#include "utils/timestamp.h"

/*
 * first_record - where the first record after a place in the WAL begins
 */
static XLogRecPtr
first_record(XLogRecPtr end)
{
	if (end % (XLogRecPtr) wal_segment_size == 0)
		return end + SizeOfXLogLongPHD;
	if (end % XLOG_BLCKSZ == 0)
		return end + SizeOfXLogShortPHD;
	return end;
}

/*
 * read_record - read a record; NULL if that cannot be
 */
static XLogRecord *
read_record(XLogReaderState *reader, XLogRecPtr start)
{
	char	   *problem;

	XLogBeginRead(reader, start);
	return XLogReadRecord(reader, &problem);
}

/*
 * time_of_shutdown - the time of the shutdown checkpoint before that place
 *
 * DT_NOBEGIN if the record before is none.  The first record of the next timeline points
 * to it.
 */
static TimestampTz
time_of_shutdown(XLogReaderState *reader, XLogRecPtr end)
{
	XLogRecord *record = read_record(reader, first_record(end));

	if (record)
		record = read_record(reader, record->xl_prev);
	if (record == NULL || record->xl_rmid != RM_XLOG_ID ||
		(record->xl_info & ~XLR_INFO_MASK) != XLOG_CHECKPOINT_SHUTDOWN ||
		reader->EndRecPtr != end)
		return DT_NOBEGIN;
	return time_t_to_timestamptz(((CheckPoint *) XLogRecGetData(reader))->time);
}

/* A timeline, and when the shutdown checkpoint was that ended it. */
typedef struct
{
	TimeLineID	timeline;
	TimestampTz shutdown;
} TimelineEnd;

/*
 * read_end - look at the end of a timeline of the server's own history; for
 * ShedlockTrySubtransaction()
 */
static void
read_end(void *arg)
{
	TimelineEnd *end = arg;
	List	   *history = readTimeLineHistory(GetWALInsertionTimeLine());
	XLogReaderState *reader;

	if (!tliInHistory(end->timeline, history))
		return;
	reader = XLogReaderAllocate(wal_segment_size, NULL,
								XL_ROUTINE(.page_read = &read_local_xlog_page_no_wait,
										   .segment_open = &wal_segment_open,
										   .segment_close = &wal_segment_close),
								palloc0(sizeof(ReadLocalXLogPageNoWaitPrivate)));
	if (reader == NULL)
		return;
	PG_TRY();
	{
		end->shutdown = time_of_shutdown(reader, tliSwitchPoint(end->timeline, history, NULL));
	}
	PG_FINALLY();
	{
		XLogReaderFree(reader);
	}
	PG_END_TRY();
}

/*
 * ShedlockTimelineShutdown - when the shutdown checkpoint was that provably ended a timeline
 *
 * Rounded down to a second; DT_NOBEGIN if there is no proof.  Call this only for a
 * timeline that is not the current one, and not in recovery.  There is no proof if the WAL
 * of its end has been recycled.  Reads files, so the caller remembers the answer.  In a
 * subtransaction, because a missing file is an error.
 */
TimestampTz
ShedlockTimelineShutdown(TimeLineID timeline)
{
	TimelineEnd end = {.timeline = timeline,.shutdown = DT_NOBEGIN};
	ErrorData  *failure = ShedlockTrySubtransaction(read_end, &end);

	if (failure && failure->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(failure);
	return end.shutdown;
}
