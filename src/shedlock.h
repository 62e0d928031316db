/*-------------------------------------------------------------------------
 *
 * shedlock.h
 *	  What the files of the extension share.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_H
#define SHEDLOCK_H

#include "advisory/advisory.h"
#include "base/base.h"
#include "job/job.h"
#include "lib/stringinfo.h"
#include "lock/lock.h"
#include "nodes/pg_list.h"
#include "session/session.h"
#include "table/table.h"
#include "utils/rel.h"

#endif							/* SHEDLOCK_H */
