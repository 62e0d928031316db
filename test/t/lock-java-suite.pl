# ShedLock's own test suite for lock providers, on the extension's table: each case
# follows its original, under the original's name, with the library's statements.
#
# Not ported, because they send no statement to a server, or none that other cases do
# not send:
#
#	JdbcTemplateLockProviderTest, DatabaseProductTest, LockConfigurationTest
#		what Java objects refuse or detect when they are created
#	JdbcTemplateStorageAccessorTest, the one with mocks
#		Spring's exceptions that are translated into others
#	KeepAliveLockProviderTest, TrackingLockProviderWrapperTest
#		which calls a wrapper makes and when; the calls are extend and unlock
#	DefaultLockingTaskExecutorTest, DefaultLockManagerTest, LockAssertTest,
#	LockExtenderTest, ReentrantLockProviderTest
#		what a thread of one JVM caches
#	MicrometerLockingTaskExecutorListenerTest, the tests of Spring's, Micronaut's
#	and CDI's annotations
#		counters and configuration
#	LockRecordRegistryTest, weak keys
#		Java's garbage collector
#	jOOQ's and Exposed's
#		statements of their own, which write local time into the table; jOOQ's, which
#		also set the name, are ported at the end

use strict;
use warnings FATAL => 'all';
use Fcntl qw(:flock :seek);
use FindBin;
use lib "$FindBin::RealBin/../perl";
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep);

eval { require DBD::Pg; 1 } or plan skip_all => 'this needs the Perl module DBD::Pg';
require ShedLockClient;

my $node = start_node('main', conf => "max_connections = 80\n");
$node->safe_psql('postgres',
	'CREATE TABLE plain (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)');
my $names = 0;
my $setup;    # what all clients of a suite share
my $client;
my $name;

sub client
{
	return ShedLockClient->new($node, %$setup, @_);
}

# "locked" and "unlocked" as the suite defines them
sub is_locked
{
	my ($claim, $of) = @_;

	is( $client->value("SELECT lock_until > timezone('utc', clock_timestamp()) FROM shedlock WHERE name = ?", $of // $name),
		1, $claim);
	return;
}

sub is_unlocked
{
	my ($claim, $of) = @_;

	is( $client->value("SELECT lock_until <= timezone('utc', clock_timestamp()) + interval '1 ms' FROM shedlock WHERE name = ?",
			$of // $name),
		1, $claim);
	return;
}

sub dies_like
{
	my ($code, $error, $claim) = @_;

	eval { $code->(); };
	like($@, $error, $claim);
	return;
}

# A case: its name, and its actions on a lock with a new name
sub case
{
	my ($title, $code) = @_;

	$name = sprintf('%08x-lock', ++$names);
	subtest $title => sub {
		$client = client();
		$code->();
		$client->disconnect;
	};
	return;
}

# FuzzTester: eight workers, two locks, and counters outside the database that only the
# locks' holders may change.  At SERIALIZABLE the library gives up after ten unlocks
# have conflicted with other transactions, on any table.  Eight more workers on a plain
# table show how often that happens in the same seconds.
sub fuzz
{
	my ($in_transaction) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir;
	my @tables = ('shedlock', $setup->{isolation} ? 'plain' : ());
	my (@pids, %rounds, %met, %gave_up);

	foreach my $table (@tables)
	{
		foreach my $worker (0 .. 7)
		{
			my $pid = fork;

			die "fork: $!" unless defined $pid;
			if ($pid == 0)
			{
				my $lock = "$name " . ($worker % 2 + 1);
				my %did = (rounds => 0, met => 0, gave_up => 0);

				eval { fuzz_worker(\%did, $table, $lock, "$dir/$table $lock", $worker == 0 ? 10 : 100, $in_transaction); };
				PostgreSQL::Test::Utils::append_to_file("$dir/errors", "worker $worker, $table: $@\n") if $@;
				PostgreSQL::Test::Utils::append_to_file("$dir/did", "$table $lock|$did{rounds}|$did{met}|$did{gave_up}\n");
				POSIX::_exit(0);
			}
			push @pids, $pid;
		}
	}
	waitpid($_, 0) foreach @pids;
	foreach (split /\n/, PostgreSQL::Test::Utils::slurp_file("$dir/did"))
	{
		my ($counter, $rounds, $met, $gave_up) = split /\|/;

		$rounds{$counter} += $rounds;
		$met{$counter} += $met;
		$gave_up{ $counter =~ /^(\w+)/ ? $1 : '' } += $gave_up;
	}
	is(-e "$dir/errors" ? PostgreSQL::Test::Utils::slurp_file("$dir/errors") : '', '', 'no worker meets an error');
	is($rounds{"shedlock $name 1"} . ' ' . $rounds{"shedlock $name 2"}, '310 400', 'all workers have done their rounds');
	foreach my $counter (sort keys %rounds)
	{
		is($met{$counter}, 0, "$counter: no two workers at once");
		is(PostgreSQL::Test::Utils::slurp_file("$dir/$counter"), $rounds{$counter}, "$counter: each round has counted");
	}

	# four times the deviation that chance gives two equal counts
	my ($shedlock, $plain) = map { $gave_up{$_} // 0 } ('shedlock', 'plain');
	cmp_ok($shedlock, '<=', $setup->{isolation} ? $plain + 2 + 4 * sqrt($shedlock + $plain) : 0,
		$setup->{isolation} ? "an unlock is given up no more often than on a plain table, $plain times" : 'no unlock is given up');
	return;
}

# Counts its rounds, also when it dies.
sub fuzz_worker
{
	my ($did, $table, $lock_name, $file, $iterations, $in_transaction) = @_;
	my $provider = client(table => $table);
	my $outer = $in_transaction ? client(table => $table) : undef;
	my $helper = client(table => $table, isolation => undef);

	while ($did->{rounds} < $iterations)
	{
		if ($outer)
		{
			$outer->{dbh}->begin_work;
			$outer->value('SELECT txid_current()');
		}

		# Only the first insert of the name can get no processor for so long that others give up.
		my $lock = eval { $provider->lock($lock_name, 300, 0.005) };
		die $@ if $@ && ($did->{rounds} || $@ !~ /^LockException: SH001/);
		if ($lock)
		{
			open my $counter, '+>>', $file or die "$!";
			flock($counter, LOCK_EX | LOCK_NB) or $did->{met}++;
			seek($counter, 0, SEEK_SET);
			my $n = <$counter> || 0;
			sleep(0.001);
			truncate($counter, 0);
			print $counter $n + 1;
			close $counter;
			$did->{rounds}++;

			next if eval { $provider->unlock($lock); 1 };

			# A worker that gives up leaves the lock held for five minutes; the lock is expired here.
			die $@ if $@ !~ /^LockException: 40/;
			$did->{gave_up}++;
			$lock->{valid} = 1;
			$helper->unlock($lock);
		}
		else
		{
			# leaves the processor to the holder
			sleep(0.001);
		}
	}
	continue
	{
		$outer->{dbh}->commit if $outer;
	}
	return;
}

# AbstractLockProviderIntegrationTest
sub lock_provider_cases
{
	case shouldCreateLock => sub {
		my $lock = $client->lock($name, 300);
		ok($lock, 'acquired');
		is_locked('locked');
		$client->unlock($lock);
		is_unlocked('unlocked');
	};
	case shouldNotReturnSecondLock => sub {
		my $lock = $client->lock($name, 300);
		ok($lock, 'acquired');
		is($client->lock($name, 300), undef, 'not twice');
		$client->unlock($lock);
	};
	case shouldCreateTwoIndependentLocks => sub {
		my $lock1 = $client->lock($name, 300);
		my $lock2 = $client->lock("$name 2", 300);
		ok($lock1, 'one acquired');
		ok($lock2, 'the other one acquired');
		$client->unlock($_) foreach ($lock1, $lock2);
		is_unlocked('unlocked', $_) foreach ($name, "$name 2");
	};
	case shouldLockTwiceInARow => sub {
		foreach my $round (1, 2)
		{
			my $lock = $client->lock($name, 300);
			ok($lock, "acquired, round $round");
			$client->unlock($lock);
		}
		is_unlocked('unlocked');
	};
	case shouldTimeout => sub {
		ok($client->lock($name, 0.05), 'acquired');
		sleep(0.1);
		is_unlocked('timed out');
		my $lock = $client->lock($name, 0.05);
		ok($lock, 'acquired again');
		$client->unlock($lock);
	};
	case shouldBeAbleToLockRightAfterUnlock => sub {
		my $config = ShedLockClient::configuration($name, 300);
		my @got;
		foreach my $round (1 .. 10)
		{
			my $other = client();
			my $lock = $client->lock($config);
			push @got, $lock ? 1 : 0, $other->lock($config) ? 1 : 0;
			$client->unlock($lock) if $lock;
			$other->disconnect;
		}
		is("@got", join(' ', (1, 0) x 10), 'acquired ten times, and refused to others meanwhile');
	};
	case fuzzTestShouldPass => sub { fuzz(0); };
	case shouldLockAtLeastFor => sub {
		my $lock = $client->lock($name, 4, 2);
		ok($lock, 'acquired');
		$client->unlock($lock);
		is($client->lock($name, 4, 2), undef, 'kept for its at-least time');
		sleep(2.1);
		$lock = $client->lock($name, 4, 2);
		ok($lock, 'acquired after it');
		$client->unlock($lock);
	};
	return;
}

# AbstractExtensibleLockProviderIntegrationTest
sub extensible_cases
{
	case shouldBeAbleToExtendLock => sub {
		my $lock = $client->lock($name, 2);
		ok($lock, 'acquired');
		is_locked('locked');
		my $new = $client->extend($lock, 10);
		ok($new, 'extended');
		sleep(2);
		is_locked('still locked');
		$client->unlock($new);
		is_unlocked('unlocked');
	};
	case shouldBeAbleToExtendMultipleTimes => sub {
		my $lock = $client->lock($name, 2);
		foreach my $round (1 .. 3)
		{
			$lock = $client->extend($lock, 10);
			ok($lock, "extended, round $round");
		}
		sleep(2);
		is_locked('still locked');
		$client->unlock($lock);
		is_unlocked('unlocked');
	};
	case shouldNotBeAbleToExtendUnlockedLock => sub {
		my $lock = $client->lock($name, 2);
		$client->unlock($lock);
		is_unlocked('unlocked');
		dies_like(sub { $client->extend($lock, 10) }, qr/^IllegalStateException/, 'extend after unlock');
	};
	case shouldNotBeAbleToExtendExpiredLock => sub {
		my $lock = $client->lock($name, 0.002);
		sleep(0.004);
		is($client->extend($lock, 10), undef, 'not extended');
		is_unlocked('unlocked');
	};
	case shouldBeAbleToExtendAtLeast => sub {
		my $lock = $client->lock($name, 2);
		my $new = $client->extend($lock, 10, 9);
		ok($new, 'extended');
		$client->unlock($new);
		is_locked('still locked');
	};
	case lockCanNotBeExtendedTwice => sub {
		my $lock = $client->lock($name, 2);
		ok($client->extend($lock, 10), 'extended');
		dies_like(sub { $client->extend($lock, 10) }, qr/^IllegalStateException/, 'the old lock cannot be extended');
	};
	case lockCanNotBeUnlockedAfterExtending => sub {
		my $lock = $client->lock($name, 2);
		ok($client->extend($lock, 10), 'extended');
		dies_like(sub { $client->unlock($lock) }, qr/^IllegalStateException/, 'the old lock cannot be unlocked');
		is_locked('still locked');
	};
	return;
}

# AbstractStorageBasedLockProviderIntegrationTest
sub storage_based_cases
{
	case lockShouldSurviveCacheClearingInTheMiddle => sub {
		my $lock = $client->lock($name, 300);
		ok($lock, 'acquired');
		$client->clear_cache;
		is($client->lock($name, 300), undef, 'not twice');
		$client->unlock($lock);
	};
	case unlockedLockShouldSurviveCacheClearingInTheMiddle => sub {
		my $lock = $client->lock($name, 300);
		ok($lock, 'acquired');
		$client->unlock($lock);
		$client->clear_cache;
		$lock = $client->lock($name, 300);
		ok($lock, 'acquired again');
		$client->unlock($lock);
	};
	return;
}

# AbstractJdbcLockProviderIntegrationTest
sub jdbc_cases
{
	case shouldCreateLockIfRecordAlreadyExists => sub {
		$client->{dbh}->do("INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES(?, "
			  . join(', ', ("timezone('utc', CURRENT_TIMESTAMP) - interval '1 day'") x 2) . ", 'me')", undef, $name);
		is_unlocked('the row exists and is unlocked');
		my $lock = $client->lock($name, 300);
		ok($lock, 'acquired');
		is_locked('locked');
		$client->unlock($lock);
		is_unlocked('unlocked');
	};
	case fuzzTestShouldWorkWithTransaction => sub { fuzz(1); };
	case shouldFailIfKeyNameTooLong => sub {
		# the library's column has 64 characters, the extension's has 255
		my $long = 'n' x 300;
		dies_like(sub { $client->lock($long, 300) }, qr/^LockException: 22001/, 'refused');
		is($client->value('SELECT count(*) FROM shedlock WHERE name LIKE ?', 'nnn%'), 0, 'nothing is written');
		dies_like(sub { $client->lock($long, 300) }, qr/^LockException: 22001/, 'each time');
	};
	return;
}

# AbstractJdbcTemplateStorageAccessorTest, and PostgreSQL's
sub storage_accessor_cases
{
	my $until = sub { $client->value('SELECT lock_until FROM shedlock WHERE name = ?', $_[0]) };

	case shouldNotUpdateOnInsertIfPreviousDidNotEnd => sub {
		my $config = ShedLockClient::configuration($name, 10);
		ok($client->insert_record($config), 'inserted');
		my $first = $until->($name);
		ok(!$client->insert_record(ShedLockClient::configuration($name, 20)), 'not twice');
		is($until->($name), $first, 'the end of the lock is unchanged');
	};
	case shouldNotUpdateOtherLockConfigurations => sub {
		ok($client->insert_record(ShedLockClient::configuration($_, 0.005)), 'inserted') foreach ($name, "$name other");
		sleep(0.01);
		my ($first, $other) = map { $until->($_) } ($name, "$name other");
		ok($client->update_record(ShedLockClient::configuration($name, 10)), 'updated');
		cmp_ok($until->($name), 'gt', $first, 'its end is later');
		is($until->("$name other"), $other, 'the end of the other lock is unchanged');
	};
	case shouldUpdateOnInsertAfterValidityOfPreviousEnded => sub {
		ok($client->insert_record(ShedLockClient::configuration($_, 0.005)), 'inserted') foreach ($name, "$name other");
		sleep(0.01);
		my ($first, $other) = map { $until->($_) } ($name, "$name other");
		ok($client->insert_record(ShedLockClient::configuration($name, 10)), 'taken over by an insert');
		cmp_ok($until->($name), 'gt', $first, 'its end is later');
		is($until->("$name other"), $other, 'the end of the other lock is unchanged');
	};
	return;
}

# StorageBasedLockProviderTest and LockRecordRegistryTest: what the client caches, as
# its statements show
sub registry_cases
{
	case 'newRecordShouldBeInsertedAndUpdatedAfterwards' => sub {
		$client->unlock($client->lock($name, 300));
		is($client->sent, 'insert unlock', 'a new record is inserted');
		$client->unlock($client->lock($name, 300));
		is($client->sent, 'update unlock', 'a known record is only updated');
	};
	case 'updateOfARecordThatIsThereAlready' => sub {
		my $other = client(locked_by => 'other');
		my $lock = $other->lock($name, 300);
		is($client->lock($name, 300), undef, 'a lock that is held is refused');
		is($client->sent, 'insert update', 'the first refused attempt sends an insert and an update');
		is($client->lock($name, 300), undef, 'the lock is refused again');
		is($client->sent, 'update', 'the second refused attempt sends an update only');
		$other->unlock($lock);
		ok($client->lock($name, 300), 'the lock is acquired when it is free');
		is($client->sent, 'update', 'that acquire sends an update only');
		$other->disconnect;
	};
	case 'shouldClear' => sub {
		$client->unlock($client->lock($name, 300));
		$client->clear_cache;
		$client->sent;
		ok($client->lock($name, 300), 'acquired after the cache was cleared');
		is($client->sent, 'insert', 'an acquire with an empty cache sends an insert');
	};
	case 'shouldNotBeCachedIfUpdateFailed' => sub {
		my $other = client(locked_by => 'other');
		$other->lock($name, 300);
		$node->safe_psql('postgres', 'CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION $e$fails$e$; END $$; '
			  . 'CREATE TRIGGER fail BEFORE UPDATE ON shedlock FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION fail()');
		eval { $client->lock($name, 300); };
		my $error = $@;
		$node->safe_psql('postgres', 'DROP FUNCTION fail CASCADE');
		like($error, qr/^LockException: P0001/, 'an error reaches the caller');
		$client->sent;
		is($client->lock($name, 300), undef, 'without the error the lock is refused');
		is($client->sent, 'insert update', 'the failed attempt left no record in the cache');
		$other->disconnect;
	};
	return;
}

# What the database's time looks like: ServerTimeTest
sub server_time_cases
{
	my $about = sub {
		my ($seconds, $claim) = @_;
		my $off = $client->value("SELECT extract(epoch FROM lock_until - timezone('utc', clock_timestamp())) FROM shedlock WHERE name = ?", $name);
		cmp_ok(abs($off - $seconds), '<', 10, $claim);
	};

	case lockUntilShouldBeInUtc => sub {
		$client->{dbh}->do("SET TimeZone = 'America/Los_Angeles'");
		my $lock = $client->lock($name, 60);
		$about->(60, 'after lock');
		$client->unlock($lock);
		$about->(0, 'after unlock');
		ok($client->lock($name, 120), 'acquired again');
		$about->(120, 'after another acquire');
	};
	return;
}

# A JVM in Los Angeles: with forceUtcTimeZone, and without
sub time_zone_cases
{
	case shouldForceUtcTime => sub {
		my $config = ShedLockClient::configuration($name, 300);
		$client->{dbh}->do("SET TimeZone = 'America/Los_Angeles'");
		ok($client->insert_record($config), 'inserted');
		is( $client->value("SELECT round(1000 * extract(epoch FROM timezone('utc', lock_until))) FROM shedlock WHERE name = ?", $name),
			sprintf('%.0f', 1000 * ($config->{created} + 300)),
			'its end is the exact instant');
	};

	# The original finds local time in the table, which the extension refuses.
	case shouldHonorTimezone => sub {
		my $local = client(offset => -8 * 3600);
		dies_like(sub { $local->lock($name, 300) }, qr/^LockException: 22008.*usingDbTime/s, 'local time is refused');
		is($client->value('SELECT count(*) FROM shedlock WHERE name = ?', $name), 0, 'nothing is written');
		dies_like(sub { $local->lock($name, 300) }, qr/^LockException: 22008/, 'the refused record is not cached');
		$local->disconnect;
	};
	return;
}

foreach my $suite (
	[ 'JdbcLockProvider, DbTime', provider => 'jdbc', mode => 'db' ],
	[ 'JdbcLockProvider, ClientTime', provider => 'jdbc', mode => 'client' ],
	[ 'JdbcTemplateLockProvider, DbTime', provider => 'template', mode => 'db' ],
	[ 'JdbcTemplateLockProvider, ClientTime', provider => 'template', mode => 'client' ],
	[ 'PostgresSerializable, DbTime', provider => 'template', mode => 'db', isolation => 'serializable' ],
	[ 'PostgresSerializable, ClientTime', provider => 'template', mode => 'client', isolation => 'serializable' ])
{
	my ($title, %options) = @$suite;

	$setup = \%options;
	subtest $title => sub {
		lock_provider_cases();
		extensible_cases();
		storage_based_cases();
		jdbc_cases();
		storage_accessor_cases();
		registry_cases();
		server_time_cases() if $options{mode} eq 'db';
		time_zone_cases() if $options{mode} eq 'client';
	};
}

# MultiTenancy: a database for each tenant
$setup = {};
$node->safe_psql('postgres', 'CREATE DATABASE tenant');
$node->safe_psql('tenant', 'CREATE EXTENSION shedlock');
case shouldUseDifferentDatabaseForEachTenant => sub {
	my $tenant = client(dbname => 'tenant');
	my ($here, $there) = map { $_->lock($name, 300) } ($client, $tenant);
	ok($here && $there, 'both have the lock of that name');
	is($_->lock($name, 300), undef, 'neither database gives it twice') foreach ($client, $tenant);
	$client->unlock($here);
	is($tenant->lock($name, 300), undef, 'the release of one leaves the other held');
	$tenant->disconnect;
};

# A provider that does not know the row yet, beside an open transaction that has acquired
# the lock, or a new name; with the lock_timeout of doc/java.md
my $opener = session($node);
$client = client();
$client->unlock($client->lock("open $_", 300)) foreach qw(template jdbc);
ask($opener, "BEGIN; SELECT shedlock_acquire('open template'), shedlock_acquire('open jdbc'), shedlock_acquire('open new')");
foreach my $provider (qw(template jdbc))
{
	my $fresh = client(provider => $provider);
	$fresh->{dbh}->do('SET lock_timeout = 300');
	eval { $fresh->lock("open $provider", 300) };
	like($@, qr/^LockException: 55P03/, "$provider: lock_timeout ends the wait for the open transaction");
	is($fresh->sent, 'insert update', '  which the UPDATE waits for');
	foreach my $attempt (1, 2)
	{
		eval { $fresh->lock('open new', 300) };
		like($@, qr/^LockException: SH001/, "$provider: a new name is an error, attempt $attempt");
	}
	$fresh->disconnect;
}
ask($opener, 'COMMIT');
is($client->lock('open new', 300), undef, 'after the commit the new name is held');
ask($opener, "SELECT shedlock_release('open new')");
ok($client->lock('open new', 300), 'after its release it is acquired');
$opener->quit;
$client->disconnect;

# jOOQ: the session's wall clock, and an UPDATE of all columns, as a role with exactly
# the grants in doc/java.md
my ($grant) = slurp_file("$FindBin::RealBin/../../doc/java.md") =~ /^(GRANT SELECT, INSERT \(name, .* ON shedlock TO app;)$/m;
$node->safe_psql('postgres', "CREATE ROLE app; $grant");
my %jooq = (
	insert => q{INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
		VALUES ('jooq', current_timestamp(6) + interval '5 min', current_timestamp(6), '%s') ON CONFLICT DO NOTHING},
	update => q{UPDATE shedlock SET name = 'jooq', lock_until = current_timestamp(6) + interval '5 min',
		locked_at = current_timestamp(6), locked_by = '%s' WHERE name = 'jooq' AND lock_until <= current_timestamp(6)},
	extend => q{UPDATE shedlock SET lock_until = current_timestamp(6) + interval '10 min'
		WHERE name = 'jooq' AND locked_by = '%s' AND lock_until > current_timestamp(6)},
	unlock => q{UPDATE shedlock SET lock_until = current_timestamp(6) WHERE name = 'jooq' AND locked_by = '%s'});
my @rows;
foreach my $sent (qw(insert:a update:b extend:b extend:a unlock:a update:b insert:a update:a unlock:b))
{
	my ($statement, $host) = split /:/, $sent;

	push @rows, $sent . ' ' . $node->safe_psql('postgres',
		"SET ROLE app; SET TimeZone = 'UTC'; WITH s AS (" . sprintf($jooq{$statement}, $host) . ' RETURNING 1) SELECT count(*) FROM s');
}
is("@rows", 'insert:a 1 update:b 0 extend:b 0 extend:a 1 unlock:a 1 update:b 1 insert:a 0 update:a 0 unlock:b 1',
	'jOOQ acquires, extends and releases with the grants of doc/java.md');
is( error_of($node, "SET ROLE app; SET TimeZone = 'Asia/Tokyo'; " . sprintf($jooq{update}, 'a')) =~ s{:.*}{}r, '22008',
	'jOOQ gets an error in a session that is not in UTC');

$node->stop;
done_testing();
