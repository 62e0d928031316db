# Settings work with preloading, and without it, where they are placeholders until
# the first call.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main', conf => "shedlock.default_lock_at_most_for = '7min'\n");
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN');
$node->safe_psql('postgres', 'CREATE ROLE careful LOGIN');
$node->safe_psql('postgres', 'CREATE ROLE acting SUPERUSER');

# Returns what a statement logs, without the statement itself.
sub logged
{
	my ($sql, @options) = @_;
	my $from = -s $node->logfile;

	$node->psql('postgres', $sql, @options);
	my @lines = grep { !/LOG:  statement: / }
	  split /\n/, PostgreSQL::Test::Utils::slurp_file($node->logfile, $from);
	return join("\n", @lines);
}

sub remaining
{
	my ($name) = @_;

	return "(SELECT round(extract(epoch FROM remaining) / 60) FROM shedlock_locks WHERE name = '$name')";
}

# What psql prints, and its errors.  A session that is refused for its options does
# not read its input, which would end the test.
sub psql_says
{
	my ($sql, %options) = @_;
	my ($status, $out, $err);

	if ($ENV{PGOPTIONS})
	{
		$options{extra_params} = [ @{ $options{extra_params} // [] }, '-c', $sql ];
		$sql = '';
	}
	($status, $out, $err) = $node->psql('postgres', $sql, %options);
	return ($out, $err);
}

sub heard
{
	return (psql_says(@_))[1];
}

sub test_settings
{
	my ($how) = @_;

	is($node->safe_psql('postgres', "SELECT shedlock_acquire('$how conf'); SELECT " . remaining("$how conf")),
		"t\n7", "$how: postgresql.conf");
	is($node->safe_psql('postgres', "SET shedlock.default_lock_at_most_for = '5min';"
			  . "SELECT shedlock_acquire('$how set'); SELECT " . remaining("$how set")),
		"t\n5", "$how: SET before the first call");
	is($node->safe_psql('postgres', "SELECT shedlock_token('$how set'); SET shedlock.default_lock_at_most_for = '3min';"
			  . "SELECT shedlock_acquire('$how later'); SELECT " . remaining("$how later")),
		"\nt\n3", "$how: SET after the first call");
	is($node->safe_psql('postgres', "SET shedlock.default_lock_at_least_for = '2min'; SELECT shedlock_acquire('$how least');"
			  . "SELECT shedlock_release('$how least'); SELECT " . remaining("$how least")),
		"t\nt\n2", "$how: lock_at_least_for");
	like(heard("SET shedlock.default_lock_at_least_for = '2min'; SELECT shedlock_acquire('$how order', '1 min')"),
		qr/ERROR:  lock_at_least_for is longer than lock_at_most_for for lock "$how order"/,
		"$how: the defaults are checked like arguments");

	like(heard("SET shedlock.require_token = on; SELECT shedlock_acquire('$how token'); SELECT shedlock_release('$how token')"),
		qr/ERROR:  token of lock "$how token" must not be null/, "$how: require_token refuses a release without the token");
	like(heard("SET shedlock.require_token = on; SELECT shedlock_acquire('$how token 2'); SELECT shedlock_extend('$how token 2')"),
		qr/ERROR:  token of lock/, "$how: require_token refuses an extend without the token");
	like(heard("SET shedlock.require_token = on; SELECT shedlock_acquire('$how token 3'); SELECT shedlock_assert('$how token 3')"),
		qr/ERROR:  token of lock/, "$how: require_token refuses an assert without the token");
	is($node->safe_psql('postgres', "SET shedlock.require_token = on;"
			  . "SELECT shedlock_release('$how token 4', shedlock_acquire_token('$how token 4'));"
			  . "SELECT shedlock_acquire_session('$how token 5'), shedlock_release('$how token 5')"),
		"t\nt|t", "$how: require_token accepts the token, and session locks without it");

	# Role settings made by an administrator, also of settings that the role cannot set
	$node->safe_psql('postgres', 'ALTER ROLE careful SET shedlock.require_token = on; ALTER ROLE careful SET shedlock.log_locks = on');
	like(heard("SELECT shedlock_acquire('$how careful'); SELECT shedlock_release('$how careful')",
			extra_params => [ '-U', 'careful' ]),
		qr/token of lock/, "$how: ALTER ROLE SET");
	like(logged("SELECT shedlock_acquire('$how careful 2')", extra_params => [ '-U', 'careful' ]),
		qr/LOG:  lock "$how careful 2" acquired/, "$how: ALTER ROLE SET of a setting for superusers");
	$node->safe_psql('postgres', 'ALTER ROLE careful RESET ALL');

	# log_locks
	is(logged("SELECT shedlock_acquire('$how quiet'); SELECT shedlock_release('$how quiet')"), '', "$how: locks are not logged");
	my $log = logged("SET shedlock.log_locks = on; SELECT shedlock_acquire('$how log', '1 h', locked_by => 'the test');"
		  . "SELECT shedlock_acquire('$how log'); SELECT shedlock_extend('$how log');"
		  . "SELECT shedlock_release('$how log'); SELECT shedlock_release('$how log')");
	like($log, qr/LOG:  lock "$how log" acquired by "the test #\d+" until /, "$how: log_locks logs an acquire");
	is(scalar(() = $log =~ /acquired/g), 1, "$how: log_locks logs no refused acquire");
	like($log, qr/LOG:  lock "$how log" extended until .*, token \d+/, "$how: log_locks logs an extend");
	like($log, qr/LOG:  lock "$how log" released, token \d+/, "$how: log_locks logs a release");
	like($log, qr/LOG: +lock "$how log" .*(lost|not held)/, "$how: log_locks logs a loss");
	is(scalar(() = $log =~ /LOG:/g), 4, "$how: log_locks logs one line for each");
	like(logged("SET shedlock.log_locks = on; SELECT shedlock_acquire_session('$how session')"),
		qr/LOG:  lock "$how session" acquired by ".*" until its session ends/, "$how: log_locks logs an acquire of a session lock");
	my $foreign = "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) SELECT '$how foreign', utc + '1 h', utc, 'java' FROM (SELECT clock_timestamp() AT TIME ZONE 'UTC') c (utc)";
	$log = logged("SET shedlock.log_locks = on; $foreign; $foreign; SELECT shedlock_force_release('$how foreign')");
	like($log, qr/LOG:  lock "$how foreign" acquired by a foreign client\n/, "$how: log_locks logs an acquire by a foreign client");
	like($log, qr/LOG:  foreign acquire of lock "$how foreign" refused\n/, "$how: log_locks logs a foreign acquire that is refused");
	like($log, qr/LOG:  lock "$how foreign" released by force by role "postgres", token \d+/, "$how: log_locks logs a force-release by an administrator");

	# Acts of administrators are logged whatever the settings are.
	$node->safe_psql('postgres', "SELECT shedlock_acquire('$how act'); SELECT shedlock_acquire('$how purged'); SELECT shedlock_release('$how purged')");
	my $holder = session($node);
	my $pid = pid_of($holder);
	ask($holder, "SELECT shedlock_acquire_session('$how ended')");
	my $acts = "SELECT shedlock_force_release('$how act'); SELECT shedlock_force_release('$how act'); SELECT shedlock_force_release('$how ended');"
	  . "SELECT shedlock_pause('$how act', '2100-01-01Z'); SELECT shedlock_resume('$how act'); SELECT shedlock_resume('$how act'); SELECT shedlock_purge('0')";
	$log = logged("SET timezone = 'UTC'; SET ROLE acting; $acts");
	reap($holder);
	my $role = 'by role "acting" \\(session user "postgres"\\)';
	my @lines = $log =~ /LOG:  (.*)/g;
	like(shift @lines // '', $_, "$how: act of an administrator: $_")
	  foreach qr/^lock "$how act" released by force $role, token \d+$/,
	  qr/^process $pid, which held lock "$how ended", terminated $role$/,
	  qr/^lock "$how act" paused until 2100-01-01 00:00:00\+00 $role$/, qr/^lock "$how act" resumed $role$/,
	  qr/^\d+ locks and ticks purged $role$/;
	is_deeply(\@lines, [], "$how: the log has no other acts");
	my $run = session($node);
	$run->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('$how cancelled', 'SELECT pg_sleep(1000)');\n");
	ok(defined await($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), "$how: a run is in progress");
	like(logged("SET ROLE acting; SELECT shedlock_cancel('$how cancelled')"), qr/LOG:  run of lock "$how cancelled" in process \d+ canceled $role/,
		"$how: act of an administrator: cancel");
	reap($run);

	# log_skipped_runs
	$node->safe_psql('postgres', "SELECT shedlock_acquire('$how run', '1 h', locked_by => 'the test')");
	like(logged("CALL shedlock_run('$how run', 'SELECT 1')"),
		qr/LOG:  skipping run of lock "$how run"\n.*DETAIL:  It has been held by "the test #\d+" since /,
		"$how: a skipped run is logged");
	is(logged("SET shedlock.log_skipped_runs = off; CALL shedlock_run('$how run', 'SELECT 1')"), '',
		"$how: log_skipped_runs = off keeps it from the log");
	like(heard("SET shedlock.log_skipped_runs = off; CALL shedlock_run('$how run', 'SELECT 1')"),
		qr/NOTICE:  skipping run/, "$how: log_skipped_runs = off does not hide it from the client");

	# history_keep prunes the oldest runs first, in the order of tokens.
	$node->safe_psql('postgres', 'TRUNCATE _shedlock_history');
	$node->safe_psql('postgres', "CALL shedlock_run('$how old', 'SELECT 1'); CALL shedlock_run('$how old', 'SELECT 1')");
	$node->safe_psql('postgres', "UPDATE _shedlock_history SET (started_at, ended_at) = (now() - interval '29 days', now() - interval '29 days') WHERE name = '$how old'");
	$node->safe_psql('postgres', "CALL shedlock_run('$how new', 'SELECT 1')");
	my $kept = "SELECT name, count(*) FROM shedlock_history WHERE name IN ('$how old', '$how new') GROUP BY name ORDER BY name";
	is($node->safe_psql('postgres', $kept), "$how new|1\n$how old|2", "$how: history is kept for 30 days");
	$node->safe_psql('postgres', "SET shedlock.history_keep = '28d'; CALL shedlock_run('$how new', 'SELECT 1')");
	is($node->safe_psql('postgres', $kept), "$how new|2\n$how old|1", "$how: history is kept as long as history_keep says, and always the last run of a name");
	return;
}

test_settings('without preload');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name LIKE 'shedlock.%'"), '0',
	'without preload: nothing is loaded before the first call');
like(heard("SET shedlock.default_lock_at_most_for = 'soon'; SELECT shedlock_acquire('soon'); SELECT " . remaining('soon')),
	qr/WARNING:  invalid value for parameter "shedlock.default_lock_at_most_for": "soon"/,
	'without preload: the first call warns about an invalid placeholder');
is($node->safe_psql('postgres', 'SELECT ' . remaining('soon')), '7', 'without preload: an invalid placeholder is ignored');
is(error_of($node, 'SHOW shedlock.require_token') =~ /^(\w+)/ && $1, '42704', 'without preload: SHOW fails before the first call');
is($node->safe_psql('postgres', "LOAD 'shedlock'; SHOW shedlock.require_token"), 'off', 'without preload: SHOW works after LOAD');
is(error_of($node, "LOAD 'shedlock'; ALTER SYSTEM SET shedlock.log_locks = on; ALTER SYSTEM RESET shedlock.log_locks"),
	'no error', 'without preload: ALTER SYSTEM works after LOAD');
is(error_of($node, 'ALTER ROLE careful SET shedlock.require_tokn = on'), 'no error', 'without preload: ALTER ROLE accepts a misspelled setting');
like(heard("SELECT shedlock_token('x')", extra_params => [ '-U', 'careful' ]),
	qr/WARNING:  invalid configuration parameter name "shedlock.require_tokn", removing it/,
	'without preload: the role gets a warning about it at its first call');
$node->safe_psql('postgres', 'ALTER ROLE careful RESET ALL');
is(error_of($node, "LOAD 'shedlock'; ALTER ROLE careful SET shedlock.require_tokn = on") =~ /^(\w+)/ && $1, '42602',
	'without preload: after LOAD a misspelled setting is refused');
like(heard('SET shedlock.nonsense = 1; SELECT shedlock_token(\'x\')'),
	qr/WARNING:  invalid configuration parameter name "shedlock.nonsense", removing it/,
	'without preload: the first call warns about an unknown setting');
like(heard("SET shedlock.log_locks = on; SELECT shedlock_acquire('sneaky')", extra_params => [ '-U', 'app' ]),
	qr/WARNING:  permission denied to set parameter "shedlock.log_locks"/,
	'without preload: the first call warns a plain role about a setting for superusers');
unlike(logged("SET shedlock.log_locks = on; SELECT shedlock_acquire('sneaky 2')", extra_params => [ '-U', 'app' ]),
	qr/LOG:  lock/, 'without preload: a plain role\'s setting for superusers has no effect');

# Each setting for superusers, with a value that is not the built-in one.  The list is
# the server's, so a new setting is tested, too.
sub superuser_settings
{
	return map { [ split /\|/ ] } split /\n/, $node->safe_psql('postgres', q{LOAD 'shedlock';
		SELECT name, boot_val, CASE vartype WHEN 'bool' THEN CASE boot_val WHEN 'on' THEN 'off' ELSE 'on' END
			WHEN 'enum' THEN (array_remove(enumvals, boot_val))[1] ELSE (boot_val::integer + 77)::text END
		FROM pg_settings WHERE name LIKE 'shedlock.%' AND context = 'superuser' ORDER BY name});
}

sub test_privileges
{
	my ($how) = @_;

	foreach my $setting (superuser_settings())
	{
		is(error_of($node, "SELECT shedlock_token('x'); SET $setting->[0] = '$setting->[1]'", extra_params => [ '-U', 'app' ]) =~ /^(\w+)/ && $1,
			'42501', "$how: a plain role cannot set $setting->[0]");
	}
	foreach my $name ('default_lock_at_most_for', 'default_lock_at_least_for')
	{
		is(error_of($node, "SELECT shedlock_token('x'); SET shedlock.$name = 1", extra_params => [ '-U', 'app' ]),
			'no error', "$how: a plain role can set $name");
	}
	return;
}

test_privileges('without preload');

# Ways for a role that must give its tokens to get around that
sub test_escapes
{
	my ($how) = @_;
	my $careless = "SELECT shedlock_acquire('$how escape'); SELECT shedlock_release('$how escape')";
	my @as_app = (extra_params => [ '-U', 'app' ]);
	my $displaced = qr/permission denied to set parameter "shedlock.require_token"/i;

	$node->safe_psql('postgres', 'ALTER ROLE app SET shedlock.require_token = on');
	like(heard($careless, @as_app), qr/ERROR:  token of lock/, "$how: a role must give its tokens");
	$node->safe_psql('postgres', "SELECT shedlock_force_release('$how escape')");
	like(heard("SET shedlock.require_token = off; $careless", @as_app), qr/ERROR:  (token of lock|permission denied to set parameter)/,
		"$how: SET before the first call does not lift that");
	$node->safe_psql('postgres', "SELECT shedlock_force_release('$how escape')");
	like(error_of($node, 'ALTER ROLE app SET shedlock.require_token = off', @as_app), qr/^42501/, "$how: the role cannot set it off by ALTER ROLE");
	like(error_of($node, 'ALTER ROLE app RESET shedlock.require_token', @as_app), qr/^42501/, "$how: the role cannot reset it by ALTER ROLE");
	foreach my $options ('-c shedlock.require_token=off', '--Shedlock.require-token=off', '-cshedlock.re\\quire_token=off')
	{
		local $ENV{PGOPTIONS} = $options;
		like(heard("SET client_min_messages = error; $careless", @as_app), $displaced, "$how: options of the connection do not lift that: $options");
		like(heard("SET client_min_messages = error; $careless; $careless", @as_app, on_error_stop => 0), $displaced, "$how: a second try does not lift that");
		is($node->safe_psql('postgres', $careless), "t\nt", "$how: a superuser can set it off");
		$node->safe_psql('postgres', 'GRANT SET ON PARAMETER shedlock.require_token TO app');
		is($node->safe_psql('postgres', $careless, @as_app), "t\nt", "$how: a role with GRANT SET can set it off");
		$node->safe_psql('postgres', 'REVOKE SET ON PARAMETER shedlock.require_token FROM app');
	}
	$node->safe_psql('postgres', 'ALTER ROLE app RESET shedlock.require_token');
	local $ENV{PGOPTIONS} = '-c shedlock.default_lock_at_most_for=4min';
	is($node->safe_psql('postgres', "SELECT shedlock_acquire('$how of the client'); SELECT " . remaining("$how of the client"), @as_app), "t\n4",
		"$how: a setting for all roles can be given in the options");
	return;
}

test_escapes('without preload');

# No plain role restores the built-in value of such a setting, wherever it was set.
sub test_attacks
{
	my ($how) = @_;
	my @as_app = (extra_params => [ '-U', 'app' ], on_error_stop => 0);
	my @settings = superuser_settings();

	cmp_ok(scalar @settings, '>=', 8, "$how: there are settings for superusers");
	foreach my $source ('ALTER DATABASE postgres', 'ALTER ROLE app', 'ALTER SYSTEM')
	{
		$node->safe_psql('postgres', join('', "LOAD 'shedlock';\n", map { "$source SET $_->[0] = '$_->[2]';\n" } @settings) . "SELECT pg_reload_conf()");
		ok(defined await($node, "SELECT coalesce(current_setting('shedlock.history_keep', true), '') LIKE '2592077%'"), "$how: $source is read") if $source =~ /SYSTEM/;
		foreach my $setting (@settings)
		{
			my ($name, $built_in, $value) = @$setting;
			my %attacks = (
				'PGOPTIONS' => '',
				'SET before the first call' => "SET $name = '$built_in';",
				'ALTER ROLE of itself' => "ALTER ROLE app SET $name = '$built_in'; ALTER ROLE app RESET $name; ALTER ROLE app RESET ALL; \\c -\n",
				'ALTER ROLE of itself, loaded' => "SELECT shedlock_token('app:x'); ALTER ROLE app SET $name = '$built_in'; ALTER ROLE app RESET $name; ALTER ROLE app RESET ALL; \\c -\n",
				'SET LOCAL, loaded' => "SELECT shedlock_token('app:x'); BEGIN; SET LOCAL $name = '$built_in'; RESET $name;");

			foreach my $attack (sort keys %attacks)
			{
				local $ENV{PGOPTIONS} = $attack eq 'PGOPTIONS' ? "-c $name=$built_in" : '';
				my ($out, $err) = psql_says("$attacks{$attack} ROLLBACK; SELECT shedlock_token('app:x'); SELECT 'has ' || setting FROM pg_settings WHERE name = '$name'", @as_app);
				my $holds = $out =~ /^has \Q$value\E$/m || $err =~ /(?:ERROR|FATAL):  permission denied to set parameter "$name"/ && $attack eq 'PGOPTIONS';

				ok($holds, "$how: $source: $name, attacked by $attack") or diag "$out\n$err";
			}
		}
		$node->safe_psql('postgres', join('', "LOAD 'shedlock';\n", map { "$source RESET $_->[0];\n" } @settings) . "SELECT pg_reload_conf()");
		ok(defined await($node, "SELECT coalesce(current_setting('shedlock.history_keep', true), '') NOT LIKE '2592077%'"), "$how: $source is reset") if $source =~ /SYSTEM/;
	}
	return;
}

test_attacks('without preload');

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'shedlock'\n");
$node->restart;
is($node->safe_psql('postgres', 'SHOW shedlock.default_lock_at_most_for'), '7min', 'preloaded: settings are there before any call');
test_settings('preloaded');
test_privileges('preloaded');
test_escapes('preloaded');
test_attacks('preloaded');
like(error_of($node, "SET shedlock.default_lock_at_most_for = 'soon'"), qr/^22023/, 'preloaded: an invalid value is refused');
like(error_of($node, 'SET shedlock.default_lock_at_most_for = 0'), qr/^22023/, 'preloaded: a lease of zero length is refused');
like(error_of($node, 'SET shedlock.nonsense = 1'), qr/^42602/, 'preloaded: an unknown setting is refused');

$node->append_conf('postgresql.conf', "shedlock.default_lock_at_most_for = '9min'\n");
$node->reload;
ok(defined await($node, "SELECT current_setting('shedlock.default_lock_at_most_for') = '9min'"), 'preloaded: a reload changes the settings');

# A preloaded library must not pass state of the postmaster on to its children.
my $session = session($node);
ask($session, "SELECT shedlock_acquire_session('one')");
is($node->safe_psql('postgres', "SELECT shedlock_token('one') IS NULL, shedlock_acquire('one'), shedlock_acquire('two')"),
	't|f|t', 'preloaded: a session owns only the locks that it acquired');
$session->quit;

$node->stop;
done_testing();
