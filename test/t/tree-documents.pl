# Tests the documentation: its SQL runs here in the order of the text and must give the
# answers in its comments, its functions in Python and JavaScript and its lines for hosts
# must run a job once, and its links must lead somewhere.
#
#	```sql            one session for all of a file, in a database of its own
#	```sql pg_cron    one session for all files, in the database of a real pg_cron
#	```sql owned      the same, with the extension in a schema of its own
#	```sql other      the same, where a table named shedlock exists
#	```sql move       the same, with the extension in public, and a job
#	```sql adopt      the same, with tables of ShedLock
#	```sql tenants    not here, but in security-tenants.pl
#	```sql back       not here, but in lock-java-adopt.pl
#	```sh             not run; the scripts that it names must exist
#	```crontab        each line is called by three hosts
#	```systemd        the same with ExecStart
#	```yaml           the same with args
#	```yaml cluster   not here, but in scripts/test images
#	```ini            a service file of libpq for these
#	```sh command     a script that the program shedlock runs
#	```dockerfile     not run
#	```LANGUAGE job   not here, but in run-recipes.pl and test/slow/lock-clients.pl
#	```python call    not run
#	```python program two processes run it at the same time
#	```sh hear       not here, but in monitoring-hearing.pl, with the rest of doc/hearing.md
#	```msmtprc       the same
#	```json          the same
#
# Comments after a statement that are compared:
#
#	-- true ...                  true
#	-- false ...                 false
#	-- true for one caller ...   true, and false for the next one
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use File::Copy 'copy';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use SkewedClock;
use Test::More;

my @files = ('README.md', map { "doc/$_.md" } qw(services hosts hearing pg_cron java operations monitoring failures reference orms compared));
my @linked = (@files, 'CONTRIBUTING.md', 'CHANGELOG.md', 'bench/README.md', 'bench/peers/results.md');

# The databases, and their contents before the reader's blocks
my $extension = 'CREATE EXTENSION shedlock;';
my $orders = 'CREATE TABLE orders (id bigint PRIMARY KEY, paid boolean);';
my %prepare = (
	'README.md' => '',
	'services.md' => "$extension $orders INSERT INTO orders SELECT n, false FROM generate_series(1001, 1500) n;",
	'hearing.md' => $extension,
	'hosts.md' => "$extension CREATE TABLE reports (made_at timestamptz)",
	'pg_cron.md' => "$extension $orders",
	'java.md' => $extension,
	'operations.md' => $extension,
	'monitoring.md' => $extension,
	'reference.md' => $extension,
	'orms.md' => '',
	'pg_cron' => qq{
CREATE EXTENSION pg_cron;
$extension
$orders
CREATE MATERIALIZED VIEW sales AS SELECT * FROM orders;
CREATE UNIQUE INDEX ON sales (id);
},
	'owned' => 'CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling',
	'move' => "$extension SELECT shedlock_job('nightly', 'every 1 day')",
	'other' => 'CREATE TABLE shedlock (name varchar(64) PRIMARY KEY)',
	'adopt' => q{
CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL);
INSERT INTO shedlock SELECT 'held', n + interval '1 hour', n, 'host' FROM timezone('UTC', now()) n;
CREATE SCHEMA batch;
CREATE TABLE batch.locks ("lock name" text PRIMARY KEY, lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL, host text NOT NULL);
CREATE SCHEMA billing;
CREATE TABLE billing.shedlock (LIKE shedlock INCLUDING ALL);
CREATE VIEW billing.lock_report AS SELECT name, locked_by FROM billing.shedlock;
});

my $node = PostgreSQL::Test::Cluster->new('readme');
my @blocks;
my $compared = 0;

# Text, file, line and database of each block, by the words after the backquotes
sub read_blocks
{
	my %known = map { $_ => 1 } 'java', 'python program', map({ "$_ service" } qw(python js go java)), 'sh', 'sh command', 'sh hear', 'sql back', 'sql tenants', 'yaml cluster',
	  qw(crontab systemd yaml ini dockerfile msmtprc json), map { /\.md$/ ? 'sql' : "sql $_" } keys %prepare;

	is_deeply([ sort grep { /^doc/ } @files ], [ sort glob 'doc/*.md' ], 'all files in doc/ are read');
	foreach my $file (@files)
	{
		my $markdown = slurp_file($file);

		while ($markdown =~ /^```([^\n]*)\n(.*?)^```$/msg)
		{
			my ($words, $text, $line) = ($1, $2, 2 + (substr($markdown, 0, $-[0]) =~ tr/\n//));
			my $database = $words eq 'sql' ? $file =~ s{.*/}{}r : $words =~ s/^sql //r;

			ok($known{$words} && ($words ne 'sql' || defined $prepare{$database}), "$file line $line: some test checks a block \"$words\"");
			push @blocks, { words => $words, text => $text, file => $file, line => $line, database => $database };
		}
	}
	return;
}

# Returns the texts of the blocks with these words.
sub texts
{
	my ($words) = @_;

	return map { $_->{text} } grep { $_->{words} eq $words } @blocks;
}

# Runs the blocks of a database in one psql.  A statement or meta-command ends with its
# line.
sub run_blocks
{
	my ($database) = @_;
	my ($script, $output, $errors) = ('');
	my (@sources, %answer);

	foreach my $block (grep { $_->{words} =~ /^sql\b/ && $_->{database} eq $database } @blocks)
	{
		my $number = $block->{line};

		foreach my $line (split /\n/, $block->{text})
		{
			my $place = "$block->{file}:$number";

			$script .= "$line\n";
			if ($line =~ /;\s*(?:--.*)?$|\\gset$/)
			{
				$script .= "\\echo \@$place\n";
				push @sources, [ $place, $line ];
			}
			elsif ($line =~ /-- (?:true|false)\b/)
			{
				fail("$place: a promise that no test compares: $line");
			}
			$number++;
		}
	}
	is($node->psql($database, $script, stdout => \$output, stderr => \$errors), 0, "$database: runs without an error")
	  or diag $errors;

	$output .= "\n";
	$answer{$2} = $1 while $output =~ /\G(.*?)\n?^@(\S+)\n/msg;
	is_deeply([ sort keys %answer ], [ sort map { $_->[0] } @sources ], "$database: every statement runs");
	check_answer($database, @$_, $answer{ $_->[0] } // '') foreach @sources;
	return;
}

# Compares an answer with the comment after its statement.
sub check_answer
{
	my ($database, $place, $line, $answer) = @_;
	my ($statement, $promise, $rest) = $line =~ /^(.*;)\s*-- (true|false)\b(.*)/ or return;

	$compared++;
	is($answer, $promise eq 'true' ? 't' : 'f', "$place: $line");
	is($node->safe_psql($database, $statement), 'f', "$place: false for the next caller")
	  if $rest =~ /^ for one caller\b/;
	return;
}

# What the hosts of a file call, as words of a shell
sub host_calls
{
	my ($file) = @_;
	my @calls;

	foreach my $block (grep { $_->{file} eq $file } @blocks)
	{
		push @calls, $block->{text} =~ /^(?:\S+ ){5}(shedlock .*)$/mg if $block->{words} eq 'crontab';
		push @calls, $block->{text} =~ m{^ExecStart=\S+/(shedlock .*)$}mg if $block->{words} eq 'systemd';
		push @calls, join ' ', 'shedlock', map { s/"/'/gr } $1 =~ /"[^"]*"/g
		  if $block->{words} eq 'yaml' && $block->{text} =~ /^ *args: \[(.*)\]$/m;
	}
	return @calls;
}

# Runs a shell's words on a host; returns the exit status.
sub on_host
{
	my ($words) = @_;

	return system('/bin/sh', '-c', "$words 2>/dev/null") >> 8;
}

# Tests a call on three hosts, and without a server.
sub check_call
{
	my ($call, $dir) = @_;
	my $busy = $call =~ /--busy-exit' '0'/ ? 0 : 75;
	my $made = sub { return -e "$dir/made" ? scalar(() = slurp_file("$dir/made") =~ /^made$/mg) : 0 };
	my @statuses = map { on_host($call) } 1 .. 3;
	my $runs = $made->();

	# The ticks of a schedule begin a minute before it is declared.
	my ($expected, $most) = $call =~ /--once-every/ ? ("0 $busy $busy", '==') : ("(?:0|$busy) $busy $busy", '<=');
	like("@statuses", qr/\A$expected\z/, "exit statuses of three hosts: $call");
	cmp_ok($runs, $most, 1, "of three hosts one makes the backup: $call");
	{
		local @ENV{qw(PGHOST PGSERVICEFILE)} = ($dir, "$dir/no_server");
		is(on_host($call), 69, "without a server: $call");
	}
	is($made->(), $runs, 'without a server no backup is made');
	unlink "$dir/made";
	return;
}

# Tests the lines for hosts with the program that was built here, or that is installed.
sub run_hosts
{
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my ($service, @others) = texts('ini');
	my $here = 'host=' . $node->host . "\nport=" . $node->port;

	is(scalar @others, 0, 'there is one service file');
	append_to_file("$dir/no_server", $service =~ s/^host=.*/host=$dir/mr);
	append_to_file("$dir/service", $service =~ s/^host=.*/$here/mr =~ s/^dbname=.*/dbname=hosts.md/mr =~ s/^user=.*/user=hosts/mr);
	append_to_file("$dir/$_", "#!/bin/sh\necho made >>$dir/made\n") foreach 'backup', 'mirror';
	append_to_file("$dir/write", texts('sh command'));
	chmod 0755, map { "$dir/$_" } qw(backup mirror write);

	local @ENV{qw(PGHOST PGPORT PGDATABASE PGSERVICEFILE PATH)} =
	  ($node->host, $node->port, 'README.md', "$dir/service", "$dir:src/program:$ENV{PATH}");
  SKIP:
	{
		skip 'this system does not have the program shedlock', 1 if on_host('shedlock --version >/dev/null') != 0;

		my @calls = (host_calls('README.md'), host_calls('doc/hosts.md'));
		is(scalar @calls, 5, 'README.md has one call of the program, and doc/hosts.md four');
		foreach my $call (@calls)
		{
			check_call($call, $dir);
			$ENV{PGDATABASE} = 'hosts.md';
		}
		is(on_host('shedlock -n write -- write >/dev/null'), 0, 'a command writes behind a fence');
		isnt(on_host('shedlock -n write -- env SHEDLOCK_TOKEN=0 write >/dev/null'), 0, 'another token does not write');
		is($node->safe_psql('hosts.md', 'SELECT count(*) FROM reports'), '1', 'one command has written');
	}
	return;
}

# Returns links to missing files and headings of this tree.
sub check_links
{
	my %anchors;

	foreach my $file (@linked)
	{
		my $text = slurp_file($file) =~ s/^```.*?^```$//gmsr;

		$anchors{$file} = { map { lc =~ s/[^\w\- ]//gr =~ tr/ /-/r => 1 } $text =~ /^#+ (.*)$/mg };
	}
	foreach my $file (@linked)
	{
		my ($dir, @missing) = $file =~ m{^(.*/)?};

		foreach my $link (slurp_file($file) =~ /\]\(([^)\s]+)\)/g)
		{
			next if $link =~ /^https?:/;
			my ($path, $anchor) = split /#/, $link, 2;
			my $target = $path eq '' ? $file : ($dir // '') . $path;

			1 while $target =~ s{[^/]+/\.\./}{};
			push @missing, $link if !-e $target || defined $anchor && !$anchors{$target}{$anchor};
		}
		is_deeply(\@missing, [], "$file: its links lead somewhere");
	}
	return;
}

# Returns whether an interpreter has its library; fails if SHEDLOCK_CLIENTS requires it.
sub can_run
{
	my ($client) = @_;
	my %load = (
		python => [ '/usr/bin/python3', '-c', 'import psycopg' ],
		node => [ 'node', '-e', 'require("pg")' ]);
	my $output = '';
	my $can = eval { IPC::Run::run($load{$client}, '<', \undef, '>&', \$output) };

	ok($can, "$client and its library for PostgreSQL are here") or diag $output
	  if grep { $_ eq $client } split / /, $ENV{SHEDLOCK_CLIENTS} // '';
	return $can;
}

# Tests that doc/compared.md and README.md have what scripts/peers has recorded: it would change
# nothing if it put the table there now.
sub check_compared
{
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my @files = qw(bench/peers/results.md doc/compared.md README.md);

	mkdir $_ foreach map { "$dir/$_" } qw(bench bench/peers doc);
	copy($_, "$dir/$_") or die "$_: $!" foreach @files;
	command_ok([ '/usr/bin/python3', '-B', 'bench/peers/publish.py', $dir ], 'the recorded table can be put into the documents');
	is(slurp_file("$dir/$_"), slurp_file($_), "$_ has what scripts/peers has recorded") foreach @files[ 1, 2 ];
	return;
}

my $has_cron = has_pg_cron();
my %done;

init_node($node);
$node->append_conf('postgresql.conf',
		"shared_preload_libraries = 'pg_cron'\n"
	  . "cron.database_name = 'pg_cron'\n"
	  . "cron.host = '" . $node->host . "'\n")
  if $has_cron;
with_movable_clock { $node->start };

# Ticks of the blocks are hours and days: none of these ends while the test runs, and none
# began less than a minute ago.
my $left = $node->safe_psql('postgres', 'SELECT (3661 - extract(epoch FROM clock_timestamp())::int % 3600) % 3600');
if ($left < ($ENV{SHEDLOCK_SKEW} ? 600 : 60))
{
	advance_clock($left) or sleep($left);
}
read_blocks();
check_links();
SKIP:
{
	skip 'this needs Python', 3 if !-x '/usr/bin/python3';

	check_compared();
}
foreach my $script (map { m{(?:^|\s)(scripts/\S+)}g } texts('sh'))
{
	ok(-x $script, "$script exists");
}
$ENV{NODE_PATH} //= '/usr/share/nodejs';

$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE ROLE app_owner');
foreach my $database (map { $_->{database} } @blocks)
{
	next if !defined $prepare{$database} || $done{$database}++ || $database eq 'pg_cron' && !$has_cron;
	$node->safe_psql('postgres', qq(CREATE DATABASE "$database"));
	$node->safe_psql($database, $prepare{$database}) if $prepare{$database} ne '';
	run_blocks($database);
}
cmp_ok($compared, '>=', $has_cron ? 20 : 19, 'comments were compared with answers');
run_hosts();

SKIP:
{
	skip 'there is no pg_cron for this PostgreSQL', 2 unless $has_cron;

	is($node->safe_psql('pg_cron', 'SELECT command FROM cron.job WHERE jobname = $$refresh$$'),
		'REFRESH MATERIALIZED VIEW CONCURRENTLY sales',
		'a job that was guarded and unguarded is unchanged');

	# The first call notes the tick that has passed, and the second one runs it again.
	foreach my $again ('', "SELECT shedlock_again('nightly-vacuum');\n")
	{
		$node->safe_psql('pg_cron',
			$again . $node->safe_psql('pg_cron', 'SELECT command FROM cron.job WHERE jobname = $$nightly-vacuum$$'));
	}
	is($node->safe_psql('pg_cron', "SELECT outcome FROM shedlock_history WHERE name = 'nightly-vacuum'"),
		'succeeded', 'a guarded job does its work');
}

# Runs the first program of README.md twice at the same time, as said there, in a clone that has been
# built, until a tick was reported.
sub run_program
{
	my $clone = PostgreSQL::Test::Utils::tempdir();
	my ($code, @others) = texts('python program');
	my ($folder, $program) = slurp_file('README.md') =~ /Save the program in the folder `([\w\/]+)` .*?as `python3 (\w+\.py)`/;
	my @said = ('', '');
	my @runs;

  SKIP:
	{
		skip 'this needs Python with psycopg', 3 if !can_run('python');

		is(scalar @others, 0, 'there is one program');
		system('cp', '-a', '--parents', 'clients/python', $clone) == 0 or die "clients/python cannot be copied\n";
		# which Python takes for a module, if it is beside the program
		append_to_file("$clone/shedlock.so", '');
		append_to_file("$clone/$folder/$program", $code);
		local @ENV{qw(PGHOST PGPORT PGDATABASE PGUSER PYTHONDONTWRITEBYTECODE)} = ($node->host, $node->port, 'README.md', 'app', 1);
		@runs = map { IPC::Run::start([ '/usr/bin/python3', $program ], '<', \undef, '>', \$said[$_], '2>', \my $errors,
				init => sub { chdir "$clone/$folder" or die "$folder: $!\n" }) } 0, 1;
		ok($node->poll_query_until('README.md', q{SELECT count(*) > 0 FROM shedlock_history WHERE name = 'hello' AND outcome = 'succeeded'}), 'the program runs its job');
		# the other one asks at the tick, too
		sleep 6;
		$_->kill_kill foreach @runs;
		is($node->safe_psql('README.md', q{SELECT count(*) - count(DISTINCT tick) FROM shedlock_history WHERE name = 'hello'}), '0', 'two processes run each tick once');
	}
	return;
}

run_program();

done_testing();
