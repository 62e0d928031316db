EXTENSION    = shedlock
MODULE_big   = $(EXTENSION)
PGFILEDESC   = "shedlock - a scheduled job runs once, however many replicas try"

# By floor, the lowest first: a file calls only files that are listed before it.
OBJS = \
	$(WIN32RES) \
	src/base/process.o \
	src/base/settings.o \
	src/base/name.o \
	src/base/printable.o \
	src/base/duration.o \
	src/base/args.o \
	src/advisory/locktable.o \
	src/advisory/wake.o \
	src/advisory/line.o \
	src/table/relation.o \
	src/table/store.o \
	src/table/fetch.o \
	src/table/write.o \
	src/table/walend.o \
	src/table/origin.o \
	src/table/row.o \
	src/table/stats.o \
	src/table/history.o \
	src/table/runs.o \
	src/session/deadline.o \
	src/session/lease.o \
	src/session/sends.o \
	src/session/holdings.o \
	src/session/durability.o \
	src/session/ends.o \
	src/lock/judge.o \
	src/lock/acquire.o \
	src/lock/wait.o \
	src/lock/any.o \
	src/lock/owner.o \
	src/job/every.o \
	src/job/schedule.o \
	src/job/calendar.o \
	src/job/declared.o \
	src/job/due.o \
	src/job/outcome.o \
	src/job/tick.o \
	src/job/declare.o \
	src/job/execute.o \
	src/job/state.o \
	src/job/reason.o \
	src/job/event.o \
	src/job/finish.o \
	src/job/begin.o \
	src/job/pick.o \
	src/job/run.o \
	src/api/lockfuncs.o \
	src/api/jobargs.o \
	src/api/schedulefuncs.o \
	src/api/crontick.o \
	src/api/croncall.o \
	src/api/cron.o \
	src/api/jobfuncs.o \
	src/api/cronagain.o \
	src/api/declarefuncs.o \
	src/api/admin.o \
	src/api/pause.o \
	src/api/purge.o \
	src/api/status.o \
	src/api/trigger.o \
	src/module.o

PG_CPPFLAGS  = -I$(srcdir)/src

# The program shedlock, by the same rule.  It knows libpq and Linux, and nothing of the server.
PROGRAM_OBJS = \
	src/program/clock.o \
	src/program/lease.o \
	src/program/complain.o \
	src/program/said.o \
	src/program/tail.o \
	src/program/options.o \
	src/program/connection.o \
	src/program/events.o \
	src/program/statement.o \
	src/program/server.o \
	src/program/dryrun.o \
	src/program/tree.o \
	src/program/output.o \
	src/program/news.o \
	src/program/change.o \
	src/program/watch.o \
	src/program/guardian.o \
	src/program/signals.o \
	src/program/keeper.o \
	src/program/supervisor.o \
	src/program/main.o

# To judge the caches, and to find what only they do: see src/base/base.h.
ifeq ($(CACHES),no)
PG_CPPFLAGS += -DSHEDLOCK_NO_CACHES
endif

# The script of this version is joined from these parts, in this order, until the
# version is released.  It is committed then, and UNRELEASED is empty.
UNRELEASED   = 1.0
SQL_PARTS = \
	sql/install/begin.sql \
	sql/install/tables.sql \
	sql/install/locks.sql \
	sql/install/runs.sql \
	sql/install/ticks.sql \
	sql/install/administration.sql \
	sql/install/views.sql \
	sql/install/java.sql \
	sql/install/schedules.sql \
	sql/install/pg_cron.sql \
	sql/install/problems.sql \
	sql/install/privileges.sql
JOIN         = awk 'FNR == 1 && NR > 1 { print "" } { print }'
DATA_built   = $(UNRELEASED:%=sql/$(EXTENSION)--%.sql)
DATA         = $(filter-out $(DATA_built), \
	$(patsubst $(srcdir)/%,%,$(sort $(wildcard $(srcdir)/sql/$(EXTENSION)--*.sql))))

# Inputs are in test/, expected outputs of both suites in expected/.  The lists
# are spelled out, since their order matters and a stray file must not become a
# test; "make lint" compares them with the folders.
REGRESS = \
	acquire \
	acquire_any \
	release \
	extend \
	at_least \
	assert_fence \
	session_lock \
	token \
	once \
	once_every \
	wait \
	names \
	durations \
	lost \
	rollback \
	isolation_levels \
	old_now \
	refused_cost \
	privileges \
	read_only \
	search_path \
	by_hand \
	foreign_writes \
	admin \
	pause \
	purge \
	views \
	history \
	history_reads \
	stats \
	run_work \
	run_maintenance \
	run_fails \
	run_session \
	run_time \
	run_nested \
	run_skipped \
	run_refused \
	run_attacked \
	run_often \
	run_goes_on \
	jobs \
	skip \
	schedule_due \
	attempts \
	run_begin \
	begin_states \
	next \
	begin_limit \
	begin_returned \
	why \
	jobs_view \
	problems \
	forget \
	many_locks \
	no_bloat \
	cron_missing \
	cron_call \
	cron_fire \
	cron_grammar \
	cron_dst \
	adopt \
	existing_relation

ISOLATION = \
	one_holder \
	same_key \
	savepoint_frees \
	release_in_open_transaction \
	late_holder \
	lock_timeout \
	deadlock \
	owner_only \
	waiter_wakes \
	waiter_gives_up \
	session_lock_fences \
	fence_against_takeover \
	old_snapshot \
	old_transaction \
	ticks_claimed_once \
	attempts_once \
	job_open \
	job_waits \
	forget_waits \
	skip_waits \
	early_tick \
	permits \
	batch \
	run_excludes \
	run_reset \
	run_cancelled \
	run_claimed \
	request_once \
	pause_refuses \
	purge_spares \
	ends_at_commit \
	force_release \
	force_release_ends_session \
	prepared_transaction \
	foreign_row_lock \
	stats_locked \
	foreign_turned_away \
	foreign_open_transaction \
	foreign_first \
	foreign_takeover \
	adopt_waits \
	locks_view \
	locks_moved \
	run_seen \
	place_gone \
	refused_again \
	many_versions \
	race

REGRESS_OPTS   = --inputdir=$(srcdir)/test --load-extension=$(EXTENSION)
ISOLATION_OPTS = --inputdir=$(srcdir)/test --outputdir=. --load-extension=$(EXTENSION)
TAP_TESTS    = 1
PROVE_TESTS ?= test/t/*.pl

EXTRA_CLEAN  = src/program/shedlock src/program/*.o results log tmp_check src/*.gcda src/*.gcno src/*/*.gcda src/*/*.gcno *.gcov test/faults/*.so test/modules/*/*.so test/modules/*/*.o test/faults/program/child

PG_CONFIG   ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# PGXS makes no folders for a build outside the tree.
$(shell mkdir -p $(dir $(OBJS) $(PROGRAM_OBJS)))

$(DATA_built): $(SQL_PARTS) Makefile
	@$(MKDIR_P) $(@D)
	$(JOIN) $(filter %.sql,$^) >$@

# Debian's servers are built without dependency tracking.
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*/*.h)

# Not by PGXS's rules: these link a program with the objects of the library.
PROGRAM_CPPFLAGS = -D_GNU_SOURCE $(filter -D_FORTIFY_SOURCE%,$(CPPFLAGS)) -I$(srcdir)/src -I$(includedir) \
	-DSHEDLOCK_VERSION=$(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(srcdir)/$(EXTENSION).control)

# A packager who has the program already sets NO_PROGRAM to the reason.
ifneq ($(PORTNAME),linux)
NO_PROGRAM = it needs Linux
else ifeq ($(wildcard $(includedir)/libpq-fe.h),)
NO_PROGRAM = libpq-fe.h, of the package libpq-dev, is missing
endif

ifdef NO_PROGRAM
all: no-program

.PHONY: no-program
no-program:
	@echo "The program shedlock is not built: $(NO_PROGRAM)."
else
all: src/program/shedlock

install: install-program

uninstall: uninstall-program
endif

src/program/shedlock: $(PROGRAM_OBJS)
	$(CC) $(CFLAGS) $(PROGRAM_OBJS) $(LDFLAGS) -L$(libdir) -lpq -pthread -o $@

src/program/%.o: src/program/%.c src/program/program.h src/program/server.h $(EXTENSION).control
	$(CC) $(CFLAGS) -pthread $(PROGRAM_CPPFLAGS) -c -o $@ $<

.PHONY: install-program uninstall-program
install-program: src/program/shedlock
	$(MKDIR_P) '$(DESTDIR)$(bindir)' '$(DESTDIR)$(mandir)/man1'
	$(INSTALL_PROGRAM) $< '$(DESTDIR)$(bindir)/shedlock'
	$(INSTALL_DATA) $(srcdir)/doc/shedlock.1 '$(DESTDIR)$(mandir)/man1/shedlock.1'

uninstall-program:
	rm -f '$(DESTDIR)$(bindir)/shedlock' '$(DESTDIR)$(mandir)/man1/shedlock.1'

include $(srcdir)/tools/dev.mk
