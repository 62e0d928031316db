# What the worlds of t/run-due-model find: without any one clause of the library's rules of what
# is due, when, and what becomes of ticks, some promise is broken in one of 200,000 worlds.
#
# SHEDLOCK_SEED in the environment is the number of the first world.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use DueWorlds;
use PlantedFault;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $seed = $ENV{SHEDLOCK_SEED} || time % 1_000_000;
note("SHEDLOCK_SEED=$seed");
my $worlds = 200_000;
my $node = start_node('main');

# Clauses of the library, and what replaces them.
my @clauses = (
	# what is due
	'due.c', 'state.token != 0 && state.token == job->spent_token' => 'false',
	'due.c', 'state.again_at < job->created_at' => 'false',
	'due.c', 'job->carried > state.tick && job->carried != state.skipped' => 'false',
	'due.c', ' && job->carried != state.skipped' => '',
	'due.c', "state.attempt = 0;\n" => "\n",
	'due.c', '!state->done && state->retry_at' => 'state->retry_at',
	'due.c', 'state->retry_at != DT_NOEND && ' => '',
	'due.c', ' && state->attempt < job->attempts &&' => ' &&',
	'due.c', "state->tick <= now && now <= ShedlockLastTime(state->tick, job);" => 'now <= ShedlockLastTime(state->tick, job);',
	'due.c', 'state->tick <= now && now <= ShedlockLastTime(state->tick, job);' => 'state->tick <= now;',
	'due.c', 'now < state->retry_at && state->retry_at <= now + RETRY_MAX' => 'false',
	'due.c', 'pause *= 2;' => '',
	'due.c', 'when + Min(pause, RETRY_MAX)' => 'when + pause',
	'due.c', 'Max(after, job->since));' => 'after);',
	'due.c', 'next == state->skipped ?' => 'false ?',
	'due.c', 'after = Max(after, oldest - 1);' => 'after = oldest - 1;',
	'due.c', 'after = Max(after, oldest - 1);' => 'after = Max(after, oldest);',
	'due.c', 'after = Max(after, oldest - 1);' => '',
	'due.c', "if (state->again_at != DT_NOBEGIN)\n\t{" => "if (false)\n\t{",
	'due.c', 'if (state->tick <= now && state->tick != DT_NOBEGIN)' => 'if (state->tick != DT_NOBEGIN)',
	'due.c', 'if (state->tick <= now && state->tick != DT_NOBEGIN)' => 'if (state->tick <= now)',
	'due.c', "if (job->catch_up_all)\n\t{" => "if (false)\n\t{",
	'due.c', 'return is_backing_off(state, now) ? nothing : attempt;' => 'return attempt;',
	'due.c', 'if (has_attempt(state, job, now))' => 'if (has_attempt(state, job, now) && !is_backing_off(state, now))',
	'due.c', 'return first.tick <= now ? first : nothing;' => 'return first;',
	'due.c', 'first.tick > Max(state->tick, job->since)' => 'first.tick > state->tick',
	'due.c', 'first.tick > Max(state->tick, job->since)' => 'first.tick > job->since',
	'due.c', 'now <= last_time && first.tick' => 'first.tick',
	'due.c', ' && first.tick != state->skipped ? first' => ' ? first',
	'due.c', 'return has_attempt(state, job, now) && !is_backing_off' => 'return !is_backing_off',
	'due.c', ' && !is_backing_off(state, now) ? attempt' => ' ? attempt',
	'due.c', 'last->skipped == job->carried ||' => '',
	'due.c', 'last->skipped > last->tick && job->is_readable &&' => 'job->is_readable &&',

	# when to come back
	'due.c', 'if (is_backing_off(&state, at))' => 'if (false)',
	'due.c', 'if (is_backing_off(&state, at))' => '',
	'due.c', 'if (state.tick > at)' => 'if (false)',
	'due.c', 'if (job->catch_up_all && too_late' => 'if (false && too_late',
	'state.c', "if (job->found)\n" => "if (false)\n",
	'state.c', 'if (ShedlockCountsAsLease(row))' => 'if (false)',
	'state.c', 'at = Max(at, row->paused_until);' => '',
	'state.c', 'at = Min(at, now + LOOK_FOR_END);' => '',

	# when somebody should be told
	'due.c', 'since = state.again_at;' => 'since = state.tick;',
	'due.c', 'since = state.retry_at <= now ? Max(state.tick, state.retry_at) : state.tick;' => 'since = state.tick;',
	'due.c', 'else if (due.attempt == 0 && has_attempt(&state, job, now))' => 'else if (false)',
	'due.c', 'if (!job->catch_up_all && ShedlockHasSkipped(&state, job) && state.skipped <= now)' => 'if (false)',
	'due.c', 'ShedlockHasSkipped(&state, job) && state.skipped <= now' => 'state.skipped <= now',
	'due.c', 'after = Max(after, declared_at);' => '',
	'due.c', 'if (due.attempt == 0 && free_since != DT_NOBEGIN)' => 'if (false)',
	'due.c', 'if (due.attempt == 0 && free_since != DT_NOBEGIN)' => 'if (due.attempt == 0)',
	'due.c', 'since = next_tick(&state, job, after);' => 'since = due.attempt > 0 ? next_tick(&state, job, after) : DT_NOEND;',
	'due.c', 'return Max(since, Max(declared_at, free_since));' => 'return Max(since, free_since);',
	'due.c', 'return Max(since, Max(declared_at, free_since));' => 'return Max(since, declared_at);',
	'state.c', 'return Max(since, row->paused_until);' => 'return since;',
	'state.c', ' && !last->done &&' => ' &&',
	'state.c', 'held && ShedlockCountsAsRun(&row)' => 'ShedlockCountsAsRun(&row)',

	# what a declaration makes of the ticks
	'declare.c', 'job->since = now - FRESH_MAX;' => 'job->since = now;',
	'declare.c', 'job->since = now - FRESH_MAX;' => 'job->since = now - FRESH_MAX * 60;',
	'declare.c', ' || job->schedule.has_from' => '',
	'declare.c', ' || now > ShedlockLastTime(begin, job) ||' => ' ||',
	'declare.c', 'old->found ? now - job->schedule.period + 1 : begin' => 'begin',
	'declare.c', 'old->found ? now - job->schedule.period + 1 : begin' => 'now - job->schedule.period + 1',
	'declare.c', 'last->claimed_at >= (old->found' => 'false && last->claimed_at >= (old->found',
	'declare.c', 'job->since = begin - 1;' => 'job->since = begin;',
	'declare.c', 'tick > Max(ShedlockOpenTick(last, old), old->since)' => 'tick > ShedlockOpenTick(last, old)',
	'declare.c', 'tick > Max(ShedlockOpenTick(last, old), old->since)' => 'tick > old->since',
	'declare.c', 'tick != last->skipped && ' => '',
	'declare.c', ' && now <= ShedlockLastTime(tick, old))' => ')',
	'declare.c', 'old->carried <= now ? old->carried : DT_NOBEGIN' => 'DT_NOBEGIN',
	'declare.c', 'old->carried <= now ? old->carried : DT_NOBEGIN' => 'old->carried',
	'declare.c', "\t\t\treturn tick;\n\t}" => "\t\t\treturn old->carried;\n\t}",
	'declare.c', 'job->carried = old->found ? old->carried : DT_NOBEGIN;' => 'job->carried = DT_NOBEGIN;',
	'declare.c', 'job->since = old->since;' => 'job->since = now;',
	'declare.c', 'if (old->found && !changes_schedule(old, job) && !counts_ahead(old, now))' => 'if (false)',
	'declare.c', '!old->is_readable || !ShedlockSameSchedule(&old->schedule, &job->schedule)' => 'strcmp(old->schedule_text, job->schedule_text) != 0',
	'declare.c', 'job->spent_token = last.token;' => ';',
	'declare.c', 'job->created_at = old->found ? old->created_at : now;' => 'job->created_at = now;',
	'declare.c', 'job->declared_at = now;' => 'job->declared_at = old->declared_at;',
	'declare.c', 'add_change(&changes, "backoff", duration_text(old->backoff), duration_text(job->backoff));' => '',

	# what a run, its end and administrators make of them
	'begin.c', 'last->done = false;' => '',
	'begin.c', 'last->attempt = try->due.attempt;' => 'last->attempt = 1;',
	'begin.c', 'last->again_at = DT_NOBEGIN;' => '',
	'begin.c', 'last->retry_at = try->due.attempt > 1 ?' => 'last->retry_at = false ?',
	'begin.c', 'last->retry_at = try->due.attempt > 1 ?' => 'last->retry_at = true ?',
	'begin.c', 'last->claimed_at = GetCurrentTimestamp();' => '',
	'tick.c', 'if (!job.found || job.spent_token == end->token || end' => 'if (!job.found || end',
	'tick.c', 'if (end->outcome == SHEDLOCK_SUCCEEDED && job.is_readable &&' => 'if (job.is_readable &&',
	'tick.c', 'job.is_readable && !job.catch_up_all &&' => 'job.is_readable &&',
	'tick.c', "\n			last->again_at == DT_NOBEGIN)\n			use_up_passed" => "\n			true)\n			use_up_passed",
	'tick.c', 'passed > Max(last->tick, last->claimed_at) &&' => 'passed > last->tick &&',
	'tick.c', "&&\n\t\tnow - last->claimed_at >= ShedlockNextTick(schedule, last->tick) - last->tick" => '',
	'tick.c', 'end->gave_up ? DT_NOEND :' => '',
	'tick.c', 'last->attempt--;' => '',
	'tick.c', "last->attempt--;\n	last->retry_at = DT_NOBEGIN;" => 'last->attempt--;',
	'tick.c', 'last->again_at = Max(now, job->created_at);' => ';',
	'tick.c', 'if (superseded || too_late ||' => 'if (too_late ||',
	'tick.c', 'if (superseded || too_late ||' => 'if (superseded ||',
	'tick.c', 'act->is_later = last->skipped > now;' => '',
	'tick.c', "last->done = true;\n	last->retry_at = DT_NOBEGIN;\n	return true;" => 'return true;',
	'tick.c', '(last->tick >= tick && last->again_at == DT_NOBEGIN) ||' => 'last->tick >= tick ||',
	'tick.c', '(last->tick >= tick && last->again_at == DT_NOBEGIN) || last->skipped == tick' => '(last->tick >= tick && last->again_at == DT_NOBEGIN)',
	'tick.c', 'Max(tick, last.tick)' => 'tick',
	'tick.c', 'last->again_at = Max(now, act->job.created_at);' => '',
	'tick.c', "last->skipped = DT_NOBEGIN;\n\t\treturn true;" => 'return true;',
	'tick.c', 'if (last->skipped == coming)' => 'if (false)',
	'tick.c', 'use_up(last, last->skipped);' => '',
	'tick.c', 'act->older_due = due.attempt > 0 && due.tick < last->skipped;' => '',
	'tick.c', 'due.attempt > 0 && due.tick > last->tick;' => 'false;',
	'tick.c', 'Max(Max(now, last->tick), act->job.since)' => 'now');

while (my ($file, $clause, $left) = splice @clauses, 0, 3)
{
	my $title = "$file without " . "$clause, but with $left" =~ s/\s+/ /gr =~ s/, but with $//r;
	my $module = faulty_module("job/$file", $clause, $left);
	my $promise;

	if ($module)
	{
		for (my $first = $seed; !$promise && $first < $seed + $worlds; $first += 1_000)
		{
			my $found = live_worlds($node, $module, $first, 1_000, 'true');

			($promise) = grep { $found->{$_}[1] } sort keys %$found;
		}
		unlink $module;
	}
	ok($promise, "$title: " . ($promise ? "breaks $promise" : 'breaks nothing'));
}

$node->stop;
done_testing();
