# README.md cannot lie: its SQL runs here in the order of the text and must give
# the answers that its comments promise, and its functions in Python and
# JavaScript must run a job once.
#
#	```sql            one session for all of these
#	```sql pg_cron    the same, in the database of a real pg_cron
#	```sql other      the same, where a table shedlock is in the way
#	```sql tenants    not here, but in 048_tenants.pl
#
# Comments behind a statement that are compared:
#
#	-- true ...                  true
#	-- false ...                 false
#	-- true for one caller ...   true, and false for the next one
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

# What the reader of a block has before it
my %prepare = (
	'sql' => '',
	'sql pg_cron' => q{
CREATE EXTENSION pg_cron;
CREATE EXTENSION shedlock;
CREATE TABLE orders (id bigint PRIMARY KEY, paid boolean);
CREATE MATERIALIZED VIEW sales AS SELECT * FROM orders;
CREATE UNIQUE INDEX ON sales (id);
},
	'sql other' => 'CREATE TABLE shedlock (name varchar(64) PRIMARY KEY)',
	'sql adopt' => q{
CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL);
INSERT INTO shedlock SELECT 'held', n + interval '1 hour', n, 'host' FROM timezone('UTC', now()) n;
CREATE SCHEMA batch;
CREATE TABLE batch.locks ("lock name" text PRIMARY KEY, lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL, host text NOT NULL);
CREATE SCHEMA billing;
CREATE TABLE billing.shedlock (LIKE shedlock INCLUDING ALL);
CREATE VIEW billing.lock_report AS SELECT name, locked_by FROM billing.shedlock;
CREATE ROLE app_owner;
});

# What test/clients/readme.* says of a function that runs a job once
my @claims = (
	'two callers at once: one runs',
	'and the other one is told so',
	'lock_at_least_for keeps the lock after the work',
	'keeping alive extends the lock',
	'keeping alive fails once the lock is lost',
	'an error of the work reaches the caller',
	'and then the lock is given back');

my $node = PostgreSQL::Test::Cluster->new('readme');
my %blocks;
my $compared = 0;

# Text and line of each block of README.md, by the words behind the backquotes
sub read_blocks
{
	my $markdown = slurp_file('README.md');

	while ($markdown =~ /^```([^\n]+)\n(.*?)^```$/msg)
	{
		push @{ $blocks{$1} }, { text => $2, line => 2 + (substr($markdown, 0, $-[0]) =~ tr/\n//) };
	}
	is_deeply(
		[ sort keys %blocks ],
		[ sort 'java', 'js', 'python', 'sh', 'sql tenants', keys %prepare ],
		'README.md has no block that nothing looks at');
	return;
}

# Runs blocks in one psql.  Statements and meta-commands end with their line.
sub run_blocks
{
	my ($database, @blocks) = @_;
	my ($script, $output, $errors) = ('');
	my (%source, %answer);

	foreach my $block (@blocks)
	{
		my $number = $block->{line};

		foreach my $line (split /\n/, $block->{text})
		{
			$script .= "$line\n";
			if ($line =~ /;\s*(?:--.*)?$|\\gset$/)
			{
				$script .= "\\echo \@$number\n";
				$source{$number} = $line;
			}
			$number++;
		}
	}
	is($node->psql($database, $script, stdout => \$output, stderr => \$errors),
		0, "$database: README.md runs without an error")
	  or diag $errors;

	$output .= "\n";
	$answer{$2} = $1 while $output =~ /\G(.*?)\n?^@(\d+)\n/msg;
	is_deeply([ sort keys %answer ], [ sort keys %source ], "$database: and to its end");
	foreach my $number (sort { $a <=> $b } keys %source)
	{
		check_answer($database, $number, $source{$number}, $answer{$number} // '');
	}
	return;
}

# Compares an answer with the comment behind its statement.
sub check_answer
{
	my ($database, $number, $line, $answer) = @_;
	my ($statement, $promise, $rest) = $line =~ /^(.*;)\s*-- (true|false)\b(.*)/ or return;

	$compared++;
	is($answer, $promise eq 'true' ? 't' : 'f', "line $number: $line");
	is($node->safe_psql($database, $statement), 'f', "line $number: false for the next caller")
	  if $rest =~ /^ for one caller\b/;
	return;
}

# Runs the function of a block as a role without privileges, from a pool.
sub run_client
{
	my ($client, $language, $file, @command) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my ($output, $errors) = ('', '');
	my %said;

  SKIP:
	{
		skip "there is no $client with its library for PostgreSQL", scalar @claims if !can_run($client);

		is(scalar @{ $blocks{$language} }, 1, "README.md has one block for $client");
		append_to_file("$dir/$file", $blocks{$language}[0]{text});
		local $ENV{README_CODE} = $dir;
		local @ENV{qw(PGHOST PGPORT PGDATABASE)} = ($node->host, $node->port, 'readme');
		IPC::Run::run([@command], '<', \undef, '>', \$output, '2>', \$errors,
			IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
		$said{$1} = $2 while $output =~ /^(.+): (yes|no)$/mg;
		is($said{$_}, 'yes', "$client: $_") foreach @claims;
		diag $errors if $errors ne '';
	}
	return;
}

# Whether an interpreter has its library; fails where it should.
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

# Ticks of this README change with the hour, and half a minute before midnight.
sleep 1 while time % 3600 > 3555;

my $has_cron = has_pg_cron();

init_node($node);
$node->append_conf('postgresql.conf',
		"shared_preload_libraries = 'pg_cron'\n"
	  . "cron.database_name = 'pg_cron'\n"
	  . "cron.host = '" . $node->host . "'\n")
  if $has_cron;
$node->start;
read_blocks();
$ENV{NODE_PATH} //= '/usr/share/nodejs';

foreach my $words (sort keys %prepare)
{
	my $database = $words =~ /^sql (.*)/ ? $1 : 'readme';

	next if $database eq 'pg_cron' && !$has_cron;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, $prepare{$words}) if $prepare{$words} ne '';
	run_blocks($database, @{ $blocks{$words} });
}
cmp_ok($compared, '>=', 12, 'comments were compared with answers');

SKIP:
{
	skip 'there is no pg_cron for this PostgreSQL', 2 unless $has_cron;

	is($node->safe_psql('pg_cron', 'SELECT command FROM cron.job WHERE jobname = $$refresh$$'),
		'REFRESH MATERIALIZED VIEW CONCURRENTLY sales',
		'a job that was wrapped and unwrapped is as it was');
	$node->safe_psql('pg_cron',
		$node->safe_psql('pg_cron', 'SELECT command FROM cron.job WHERE jobname = $$nightly-vacuum$$'));
	is($node->safe_psql('pg_cron', 'SELECT name, outcome FROM shedlock_history'),
		'nightly-vacuum|succeeded', 'and a guarded one does its work');
}

run_client('python', 'python', 'readme.py', '/usr/bin/python3', 'test/clients/readme.py');
run_client('node', 'js', 'readme.js', 'node', 'test/clients/readme.js');

done_testing();
