# A service that uses ShedLock: one lock provider with the library's own statements,
# which name no column of the extension, its parameters and its cache of known rows.
package ShedLockClient;

use strict;
use warnings FATAL => 'all';
use DBI;
use DBD::Pg qw(:pg_types);
use POSIX qw(floor strftime);
use Time::HiRes ();

my $UTC_NOW = "timezone('utc', CURRENT_TIMESTAMP)";

# TABLE stands for the argument of withTableName(), which the library inserts unchanged.
# Parameters: s seconds, b locked_by, n name; u, a, t lock_until, locked_at and now by the
# client's clock; l seconds of lockAtLeastFor.
my %STATEMENTS = (
	db => {
		insert => [
			"INSERT INTO TABLE(name, lock_until, locked_at, locked_by) "
			  . "VALUES(?, $UTC_NOW + make_interval(secs => ?), $UTC_NOW, ?) "
			  . "ON CONFLICT (name) DO UPDATE SET lock_until = $UTC_NOW + make_interval(secs => ?), "
			  . "locked_at = $UTC_NOW, locked_by = ? WHERE QUALIFIER.name = ? AND QUALIFIER.lock_until <= $UTC_NOW",
			'nsbsbn' ],
		update => [
			"UPDATE TABLE SET lock_until = $UTC_NOW + make_interval(secs => ?), locked_at = $UTC_NOW, locked_by = ? "
			  . "WHERE QUALIFIER.name = ? AND QUALIFIER.lock_until <= $UTC_NOW",
			'sbn' ],
		extend => [
			"UPDATE TABLE SET lock_until = $UTC_NOW + make_interval(secs => ?) "
			  . "WHERE name = ? AND locked_by = ? AND lock_until > $UTC_NOW",
			'snb' ],
		unlock => [
			"UPDATE TABLE SET lock_until = CASE WHEN locked_at + make_interval(secs => ?) > $UTC_NOW "
			  . "THEN locked_at + make_interval(secs => ?) ELSE $UTC_NOW END WHERE name = ? AND locked_by = ?",
			'llnb' ]
	},
	client => {
		insert => [
			'INSERT INTO TABLE(name, lock_until, locked_at, locked_by) VALUES(?, ?, ?, ?) '
			  . 'ON CONFLICT (name) DO UPDATE SET lock_until = ?, locked_at = ?, locked_by = ? '
			  . 'WHERE QUALIFIER.lock_until <= ?',
			'nuabuabt' ],
		update => [
			'UPDATE TABLE SET lock_until = ?, locked_at = ?, locked_by = ? WHERE name = ? AND lock_until <= ?', 'uabnt' ],
		extend => [ 'UPDATE TABLE SET lock_until = ? WHERE name = ? AND locked_by = ? AND lock_until > ?', 'unbt' ],
		unlock => [ 'UPDATE TABLE SET lock_until = ? WHERE name = ? AND locked_by = ?', 'unb' ]
	});

# A time is text without a type, so the column decides its type.
my %TYPES = (
	s => PG_NUMERIC, l => PG_NUMERIC, b => PG_VARCHAR, n => PG_VARCHAR);

# A client of a node.  Options: mode, db (usingDbTime) or client; dbname, user; table;
# locked_by; offset, seconds that the client's zone is east of UTC; provider, jdbc or
# template (JdbcTemplate, which runs each statement in a transaction and regards more
# errors as "busy"); isolation.
sub new
{
	my ($class, $node, %options) = @_;
	my $self = bless {
		mode => 'db', dbname => 'postgres', user => 'postgres', table => 'shedlock', locked_by => 'host',
		offset => 0, provider => 'jdbc', known => {}, sent => [], %options }, $class;
	my $connstr = $node->connstr($self->{dbname});

	$connstr =~ s/'//g;
	$connstr =~ s/ /;/g;
	$self->{dbh} = DBI->connect("dbi:Pg:$connstr", $self->{user}, '',
		{ AutoCommit => 1, RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoInactiveDestroy => 1 });
	$self->{dbh}->do("SET default_transaction_isolation = '$self->{isolation}'") if $self->{isolation};

	# each statement is prepared on the server and stays so
	my ($qualifier) = $self->{table} =~ /("[^"]*"|\w+)$/;
	foreach my $kind (keys %{ $STATEMENTS{ $self->{mode} } })
	{
		my ($sql, $parameters) = @{ $STATEMENTS{ $self->{mode} }{$kind} };
		my $position = 0;

		# withTableName("schema.table") is the qualifier as well
		$sql =~ s/TABLE/$self->{table}/;
		$sql =~ s/QUALIFIER/$qualifier/g;
		my $sth = $self->{dbh}->prepare($sql, { pg_server_prepare => 1, pg_switch_prepared => 1 });
		$sth->bind_param(++$position, undef, $TYPES{$_} && { pg_type => $TYPES{$_} }) foreach split //, $parameters;
		$self->{statements}{$kind} = [ $sth, $parameters ];
	}
	return $self;
}

# LockConfiguration: its time starts here.  Durations in seconds.
sub configuration
{
	my ($name, $at_most, $at_least) = @_;

	return { name => $name, at_most => $at_most, at_least => $at_least // 0, created => _now() };
}

# In milliseconds, like ClockProvider
sub _now
{
	return floor(Time::HiRes::time * 1000) / 1000;
}

# Formats a timestamp like the JDBC driver: the zone's wall clock, and its offset, which a
# column without time zone ignores.
sub _timestamp
{
	my ($self, $time) = @_;
	my $offset = $self->{offset};
	my $ms = floor($time * 1000 + 0.5);

	return strftime('%Y-%m-%d %H:%M:%S', gmtime(floor($ms / 1000) + $offset))
	  . sprintf('.%03d%s%02d', $ms % 1000, $offset < 0 ? '-' : '+', abs($offset) / 3600);
}

# Runs one of the statements.  Returns the number of rows.
sub _execute
{
	my ($self, $kind, $config, $until) = @_;
	my ($sth, $parameters) = @{ $self->{statements}{$kind} };
	my %values = (
		n => $config->{name},
		b => $self->{locked_by},
		s => sprintf('%.3f', $config->{at_most}),
		l => sprintf('%.3f', $config->{at_least}),
		u => $self->_timestamp($until // $config->{created} + $config->{at_most}),
		a => $self->_timestamp(_now()),
		t => $self->_timestamp(_now()));

	push @{ $self->{sent} }, $kind;
	my $rows = eval {
		$self->{dbh}->begin_work if $self->{provider} eq 'template';
		my $n = $sth->execute(map { $values{$_} } split //, $parameters);
		$self->{dbh}->commit if $self->{provider} eq 'template';
		$n + 0;
	};
	return $rows if defined $rows;

	my ($state, $message) = ($self->{dbh}->state, $@);
	$self->{dbh}->rollback unless $self->{dbh}->{AutoCommit};
	die { state => $state, message => $message };
}

# insertRecord and updateRecord: false if the provider regards the lock as held
sub insert_record
{
	my ($self, $config) = @_;
	my $rows = eval { $self->_execute('insert', $config) };

	return $rows > 0 if defined $rows;
	return 0 if $@->{state} =~ ($self->{provider} eq 'jdbc' ? qr/^23/ : qr/^(?:23505|40...)$/);
	die "LockException: $@->{state} $@->{message}";
}

sub update_record
{
	my ($self, $config) = @_;
	my $rows = eval { $self->_execute('update', $config) };

	return $rows > 0 if defined $rows;
	return 0 if $self->{provider} eq 'template' && $@->{state} =~ /^(?:23505|40...)$/;
	die "LockException: $@->{state} $@->{message}";
}

# StorageBasedLockProvider.lock, for a name or a configuration, which can be used again.
# Returns a lock, or undef.
sub lock
{
	my ($self, @args) = @_;
	my $config = ref $args[0] ? $args[0] : configuration(@args);
	my $name = $config->{name};
	my $new = !$self->{known}{$name};

	if ($new)
	{
		my $inserted = $self->insert_record($config);

		$self->{known}{$name} = 1;
		return { config => $config, valid => 1 } if $inserted;
	}
	my $updated = eval { $self->update_record($config) };
	if (!defined $updated)
	{
		my $error = $@;
		delete $self->{known}{$name} if $new;
		die $error;
	}
	return $updated ? { config => $config, valid => 1 } : undef;
}

sub _invalidate
{
	my ($lock) = @_;

	die "IllegalStateException: Lock $lock->{config}{name} is not valid, it has already been unlocked or extended\n"
	  unless $lock->{valid};
	$lock->{valid} = 0;
	return;
}

# JdbcTemplate tries ten times if there is a conflict.
sub unlock
{
	my ($self, $lock) = @_;
	my $config = $lock->{config};

	_invalidate($lock);
	foreach my $try (1 .. ($self->{provider} eq 'template' ? 10 : 1))
	{
		my ($now, $least) = (_now(), $config->{created} + $config->{at_least});

		return if defined eval { $self->_execute('unlock', $config, $now > $least ? $now : $least) };
		last unless $@->{state} =~ /^40/;
	}
	die "LockException: $@->{state} $@->{message}";
}

# Returns the lock to continue with, or undef if it is lost.
sub extend
{
	my ($self, $lock, $at_most, $at_least) = @_;
	my $config = configuration($lock->{config}{name}, $at_most, $at_least);
	my $rows;

	_invalidate($lock);
	$rows = eval { $self->_execute('extend', $config) };
	die "LockException: $@->{state} $@->{message}" unless defined $rows;
	return $rows > 0 ? { config => $config, valid => 1 } : undef;
}

# LockRecordRegistry
sub clear_cache
{
	my ($self) = @_;

	$self->{known} = {};
	return;
}

# Returns the statements sent since the previous call.
sub sent
{
	my ($self) = @_;

	return join ' ', splice @{ $self->{sent} };
}

# Returns one value from the database.
sub value
{
	my ($self, $sql, @parameters) = @_;

	return scalar $self->{dbh}->selectrow_array($sql, undef, @parameters);
}

sub disconnect
{
	my ($self) = @_;

	delete $self->{statements};
	$self->{dbh}->disconnect;
	return;
}

1;
