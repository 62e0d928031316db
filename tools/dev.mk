# tools/dev.mk - targets for those who change shedlock; included by the Makefile
#
#	make strict         build with warnings as errors
#	make CACHES=no      build without the caches that are only for speed
#	make lint           everything that can be checked without a server
#	make analyze        what takes minutes: analyzers of gcc and clang, cppcheck
#	make indent         format src/ as PostgreSQL formats its own sources; renew tools/typedefs.list
#	make dist           a bundle for PGXN of what is committed: shedlock-VERSION.zip
#	make pgtap          the pgTAP tests, against the server of PGHOST and PGPORT
#	make skew           what moves the clock of a server, for some tests
#	make failmalloc     what lets malloc() fail in a server, for test/t/fault-rare-ends.pl
#	make due            worlds in which the library decides, for test/t/run-due-model.pl
#	make child          the command that the fault checker has the program run

COMMA = ,

# PostgreSQL's headers do not bear these flags: -isystem keeps them out.
STRICT_CFLAGS = -isystem $(includedir_server) -Wall -Wextra -Werror -Wshadow -Wconversion \
	-Wsign-conversion -Wstrict-prototypes -Wold-style-definition -Wmissing-prototypes \
	-Wcast-qual -Wundef -Wformat=2 -Wno-unused-parameter
STRICT_CLANG = -Wno-unknown-warning-option -Wno-ignored-optimization-argument

C_FILES = $(sort $(wildcard src/module.c src/*/*.c))
H_FILES = $(sort $(wildcard src/*/*.h))
# The files of src/program include no header of the server, though they could here.
LINT_CPPFLAGS = $(CPPFLAGS) $(PROGRAM_CPPFLAGS)
INDENT  = perl tools/indent --preprocess="$(CC) -E $(LINT_CPPFLAGS)"

.PHONY: strict lint lint-gcc lint-clang lint-no-caches lint-headers lint-versions lint-lists lint-text lint-man \
	lint-meta lint-indent lint-floors lint-minutes lint-released analyze analyze-gcc analyze-clang analyze-cppcheck dist indent \
	pgtap skew failmalloc due child

strict:
	$(MAKE) all PG_CFLAGS='$(STRICT_CFLAGS)'

LINT = lint-gcc lint-clang lint-no-caches lint-headers lint-floors lint-versions lint-lists lint-text \
	lint-man lint-meta lint-indent lint-minutes

lint: $(LINT)

lint-gcc:
	@printf '%s\n' $(C_FILES) | \
		xargs -P 2 -I FILE $(CC) $(CFLAGS) $(STRICT_CFLAGS) $(LINT_CPPFLAGS) -S -o /dev/null FILE

lint-clang:
	@if command -v "$(CLANG)" >/dev/null; then \
		printf '%s\n' $(C_FILES) | \
			xargs -P 2 -I FILE $(CLANG) $(CFLAGS) $(STRICT_CFLAGS) $(STRICT_CLANG) $(LINT_CPPFLAGS) -fsyntax-only FILE; \
	else \
		echo "lint: there is no clang"; \
	fi

lint-no-caches:
	@$(MAKE) -s lint-gcc lint-clang CACHES=no

# Each header of the library compiles after postgres.h alone, that of the program alone.
lint-headers:
	@for h in $(H_FILES); do \
		case $$h in \
			src/program/*) printf '#include "%s"\n' $$h | \
				$(CC) $(CFLAGS) $(STRICT_CFLAGS) $(PROGRAM_CPPFLAGS) -I. -fsyntax-only -x c - ;; \
			*) printf '#include "postgres.h"\n#include "%s"\n' $$h | \
				$(CC) $(CFLAGS) $(STRICT_CFLAGS) $(CPPFLAGS) -I. -fsyntax-only -x c - ;; \
		esac || exit 1; \
	done

# Prints each call of a function that is defined in a later file, of files that are read twice.
LATER_CALLS = FNR == 1 { file++ } \
	/^[ \t]*(\/\*|\*)/ { next } \
	!known && match($$0, /^[A-Z][A-Za-z]+\(/) { place[substr($$0, 1, RLENGTH - 1)] = file } \
	known { \
		for (line = $$0; match(line, /[A-Za-z_][A-Za-z0-9_]*/); line = substr(line, RSTART + RLENGTH)) \
			if (place[substr(line, RSTART, RLENGTH)] > file) print FILENAME ":" FNR ": " $$0 \
	}

# No file includes a header of a higher floor, see src/README: a call upwards does not compile.
# And none calls a file that the Makefile lists after it.
lint-floors:
	@above=none; \
	for floor in api job lock session table advisory base; do \
		! grep -nE "^#include \"($$above)/" src/$$floor/*.[ch] || exit 1; \
		above="$$above|$$floor"; \
	done; \
	! grep -n '^#include "advisory/' src/table/*.[ch] && \
	! grep -nE '^#include ("(postgres|[^p][^"]*/)|<(postgres|server))' src/program/*.[ch]
	@for files in '$(patsubst %.o,%.c,$(filter src/%,$(OBJS)))' '$(PROGRAM_OBJS:.o=.c)'; do \
		! awk '$(LATER_CALLS)' $$files known=1 file=0 $$files | grep . || exit 1; \
	done

# The control file has the version of the SQL objects, 1.0; releases of it,
# 1.0.0 and so on, are named by META.json and the change log.
lint-versions:
	@sql=$$(sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(EXTENSION).control); \
	meta=$$(sed -n 's/^\t"version": "\(.*\)",$$/\1/p' META.json); \
	provides=$$(sed -n 's/^\t\t\t"version": "\(.*\)"$$/\1/p' META.json); \
	changes=$$(sed -n 's/^## \([0-9.]*\) .*/\1/p' CHANGELOG.md | head -n 1); \
	script=$$(printf '%s\n' $(DATA) $(DATA_built) | \
		sed -n 's,^sql/$(EXTENSION)--\(.*--\)*\([0-9.]*\)\.sql$$,\2,p' | sort -V | tail -n 1); \
	echo "$$meta" | grep -q "^$$sql\.[0-9][0-9]*$$" && [ "$$meta" = "$$provides" ] && \
	[ "$$meta" = "$$changes" ] && [ "$$sql" = "$$script" ] || { \
		echo "versions differ: control $$sql, last script $$script, META.json $$meta and $$provides, CHANGELOG.md $$changes"; \
		exit 1; }; \
	packages=$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' clients/python/shedlock/__init__.py; \
		sed -n 's/^  "version": "\(.*\)",$$/\1/p' clients/node/package.json; \
		sed -n '/<artifactId>shedlock</{n;s/.*<version>\(.*\)<.*/\1/p;}' clients/java/pom.xml test/clients/spring/pom.xml); \
	[ "$$(echo $$packages)" = "$$meta $$meta $$meta $$meta" ] || { \
		echo "versions differ: META.json $$meta, packages of Python, Node and Java, Java's in test/clients/spring:" $$packages; \
		exit 1; }; \
	[ -n "$(UNRELEASED)" ] || $(JOIN) $(SQL_PARTS) | diff sql/$(EXTENSION)--$$sql.sql - || { \
		echo "sql/install (>) has changed since version $$sql (<) was released"; \
		exit 1; }
	@! grep -ln 'PG_VERSION_NUM' $(filter-out src/base/compat.h,$(C_FILES) $(H_FILES)) || \
		{ echo "PG_VERSION_NUM belongs into src/base/compat.h"; exit 1; }
	@! grep -nE 'WalSndCtl|sync_standbys' $(C_FILES) $(H_FILES) | grep -v 'WalSndCtl->lsn\[' || \
		{ echo "that is private to the server, and minor releases have changed its meaning"; exit 1; }

lint-lists:
	@same() { \
		printf '%s\n' $$2 | sort >$@.listed; printf '%s\n' $$3 | sort >$@.there; \
		diff $@.listed $@.there >$@.diff || { echo "$$1 (<) and its folder (>) differ:"; cat $@.diff; rc=1; }; \
		rm -f $@.listed $@.there $@.diff; }; \
	rc=0; \
	same OBJS "$(OBJS) $(PROGRAM_OBJS)" "$(C_FILES:.c=.o)"; \
	same SQL_PARTS "$(SQL_PARTS)" "$(wildcard sql/install/*)"; \
	same REGRESS "$(REGRESS)" "$(patsubst test/sql/%.sql,%,$(wildcard test/sql/*.sql))"; \
	same ISOLATION "$(ISOLATION)" "$(patsubst test/specs/%.spec,%,$(wildcard test/specs/*.spec))"; \
	same "REGRESS and ISOLATION" "$(REGRESS) $(ISOLATION)" \
		"$$(ls expected | sed 's/\(_[0-9]\)*\.out$$//' | uniq)"; \
	same "prefixes in test/README" "$$(sed -n 's/^\([a-z]*\)-  .*/\1/p' test/README)" \
		"$$(ls test/t test/slow | sed -n 's/-.*\.pl$$//p; s/\(.*\)\.pl$$/\1/p' | sort -u)"; \
	exit $$rc

# Trailing blanks, missing final newlines, shell syntax, types unknown to indent.
lint-text:
	@files=$$(find . -type f ! -path './.git/*' ! -path './results/*' ! -path './tmp_check/*' ! -path './log/*' \
		! -name '*.out' ! -name '*.o' ! -name '*.bc' ! -name '*.so' ! -name '*.gc??' ! -name '*.diffs' \
		! -name '$(EXTENSION)-*.zip'); \
	rc=0; \
	if grep -nIE '[[:blank:]]+$$' $$files; then echo "trailing blanks"; rc=1; fi; \
	for f in $$files; do \
		[ ! -s $$f ] || [ -z "$$(tail -c 1 $$f)" ] || { echo "no newline at the end of $$f"; rc=1; }; \
		case $$f,$$(head -c 20 $$f | head -n 1) in *.sh,* | *,'#!'*bash) bash -n $$f || rc=1 ;; esac; \
	done; \
	exit $$rc
	@$(INDENT) --types $(C_FILES) | LC_ALL=C diff tools/typedefs.list - || \
		{ echo "tools/typedefs.list (<) does not have the types of src/ (>): make indent"; exit 1; }

# A job is fired for the minute in which it is scheduled or for the next one.  What waits for
# pg_cron asks the history for the tick, and computes no minute from a clock.
MINUTES = \btime\b[ )]*[/%]|\bminute\(\)|\+%s\)* *[/%]|/ *60 *\+
MINUTES_SQL = (date_trunc\(.minute., *|extract\(minute FROM *)(now|(clock|statement)_timestamp|current_timestamp)
lint-minutes:
	@! grep -nE '$(MINUTES)|$(MINUTES_SQL)' $$(grep -l 'CronNode' test/t/*.pl test/slow/*.pl) scripts/demo.d/cron* || \
		{ echo "take the tick from what ran: see test/perl/CronNode.pm"; exit 1; }

# The pages that the manual page refers to need not be on this machine.
lint-man:
	@if command -v mandoc >/dev/null; then \
		! mandoc -T lint doc/shedlock.1 2>&1 | grep -vE 'referenced manual not found|outdated mandoc.db'; \
	else \
		echo "lint: there is no mandoc"; \
	fi

# Each is tried on planted faults by scripts/test hard/static, which sets C_FILES.
analyze: analyze-gcc analyze-clang analyze-cppcheck

analyze-gcc:
	@printf '%s\n' $(C_FILES) | \
		xargs -P 2 -I FILE $(CC) $(CFLAGS) -O1 $(LINT_CPPFLAGS) -fanalyzer -Werror -S -o /dev/null FILE

analyze-clang:
	@rm -f $(C_FILES:.c=.o)
	@scan-build --use-cc=$(CC) --status-bugs -o tmp_check/scan-build $(MAKE) -s $(C_FILES:.c=.o)

# The macros spare cppcheck the configurations of other machines.
analyze-cppcheck:
	@cppcheck --quiet -j 2 --std=c99 --enable=warning,performance,portability \
		-D__GNUC__=12 -D__linux__ -D__x86_64__ -DUSE_ASSERT_CHECKING $(filter -D%,$(CPPFLAGS) $(PROGRAM_CPPFLAGS)) \
		-I $(srcdir)/src -I $(includedir_server) -I $(includedir) --suppressions-list=test/hard/cppcheck.suppress \
		--error-exitcode=1 $(C_FILES)

# PGXN refuses what it does not like when it is uploaded: too late.
lint-meta:
	@perl tools/meta META.json

dist: VERSION = $(shell sed -n 's/^\t"version": "\(.*\)",$$/\1/p' META.json)
dist: lint-versions lint-meta lint-released
	@git rev-parse --quiet --verify HEAD >/dev/null || { echo "dist: git does not serve this folder"; exit 1; }
	@git diff --quiet HEAD || { echo "dist: there are changes that are not committed"; exit 1; }
	@for script in $(DATA); do \
		git cat-file -e HEAD:$$script || { echo "dist: $$script is not committed: git add -f $$script"; exit 1; }; \
	done
	@stable=$$(grep -c '"release_status": "stable"' META.json); dated=$$(grep -c '^## .*(unreleased)' CHANGELOG.md); \
	[ "$$stable $$dated" = "0 1" ] || [ "$$stable $$dated $(UNRELEASED)" = "1 0 " ] || \
		{ echo "dist: META.json, CHANGELOG.md and UNRELEASED in the Makefile differ about whether this is a release"; exit 1; }
	TZ=UTC git archive --format=zip --prefix=$(EXTENSION)-$(VERSION)/ --output=$(EXTENSION)-$(VERSION).zip HEAD

# A release has the script of its version, and databases have the scripts of a release:
# they are frozen.
lint-released:
	@[ "$$(git rev-parse --is-shallow-repository)" = false ] || { echo "a shallow clone does not have the tags"; exit 1; }
	@for tag in $$(git tag --list 'v[0-9]*'); do \
		version=$$(git show $$tag:$(EXTENSION).control | sed -n "s/^default_version = '\(.*\)'/\1/p"); \
		git cat-file -e $$tag:sql/$(EXTENSION)--$$version.sql && \
		git diff --exit-code --diff-filter=a $$tag HEAD -- 'sql/*--*.sql' || exit 1; \
	done

indent:
	@$(INDENT) --write $(C_FILES) $(H_FILES)

lint-indent:
	@if ! command -v pg_bsd_indent >/dev/null; then echo "lint: there is no pg_bsd_indent"; \
	elif [ "$(MAJORVERSION)" -ge 19 ]; then echo "lint: pg_bsd_indent of PostgreSQL 19 has other rules"; \
	else $(INDENT) $(C_FILES) $(H_FILES); fi

# A database of its own, since the tests look at all that the extension made.
pgtap:
	dropdb --if-exists shedlock_pgtap
	createdb shedlock_pgtap
	psql -X -q -v ON_ERROR_STOP=1 -d shedlock_pgtap -c 'CREATE EXTENSION pgtap' -c 'CREATE EXTENSION $(EXTENSION)'
	pg_prove $(PROVE_FLAGS) -d shedlock_pgtap test/pgtap/*.sql

FAULTS_CFLAGS = -Wall -Wextra -Werror -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes

skew: test/faults/skew.so

failmalloc: test/faults/failmalloc.so

# Not by PGXS's rule: they know nothing of PostgreSQL.
test/faults/skew.so test/faults/failmalloc.so: %.so: %.c
	$(CC) -O2 -fPIC -shared $(FAULTS_CFLAGS) -o $@ $<

due: test/modules/due/due.so

# Linked with the library's objects, because the library itself exports none of its functions.
# Those that STAGED names are called as __wrap_NAME, which stage.c has.
DUE_OBJS = $(patsubst %,test/modules/due/%.o,due ledger stage)
STAGED = GetCurrentTimestamp $(addprefix Shedlock,SteadyNow Nap NextTick Open Close CheckPromises Fetch IsCurrent \
	IsBeingChanged NewColumns Write Delete TryLock Unlock ReadUse LookUpRow Acquire CommitDurably LockedBy \
	TickReason StateReason ReadRun HistoryStart HistoryGaveUp TellRun TellEnd)

$(DUE_OBJS): $(wildcard test/modules/due/*.h) $(H_FILES)

test/modules/due/due.so: $(DUE_OBJS) $(filter-out src/module.o,$(OBJS))
	$(CC) $(CFLAGS) $^ $(LDFLAGS) $(LDFLAGS_SL) -shared -Wl,-Bsymbolic $(addprefix -Wl$(COMMA)--wrap=,$(STAGED)) -o $@

child: test/faults/program/child

test/faults/program/child: test/faults/program/child.c
	$(CC) -O2 $(FAULTS_CFLAGS) -o $@ $<

# Prints a variable, for scripts.
print-%:
	@echo $($*)
