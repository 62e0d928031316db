# Tests the listener in Python of doc/operations.md: it mails each failure once, also one
# of the time in which the server or the mail server was away, and posts to a webhook.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IO::Select;
use IO::Socket::INET;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(time sleep);

my $output = '';
my $can = eval { IPC::Run::run([ '/usr/bin/python3', '-c', 'import psycopg' ], '<', \undef, '>&', \$output) };
ok($can, 'Python and its library for PostgreSQL are here') or diag $output
  if grep { $_ eq 'python' } split / /, $ENV{SHEDLOCK_CLIENTS} // '';
plan skip_all => 'this needs Python with psycopg' if !$can;

my $limit = $PostgreSQL::Test::Utils::timeout_default;
my $code = join "\n", slurp_file('doc/operations.md') =~ /^```python listener\n(.*?)^```$/msg;

# Names beyond ASCII need a database that knows its encoding.
$ENV{LANG} = 'C.UTF-8';
my $node = start_node('main');
$node->safe_psql('postgres', 'CREATE ROLE ears LOGIN; GRANT pg_monitor TO ears');

# A server of another protocol on a free port
sub server
{
	return IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => shift // 0, ReuseAddr => 1) || die "listen: $!";
}

# Returns the next connection within so many seconds, or undef.
sub next_connection
{
	my ($server, $seconds) = @_;

	my $connection = IO::Select->new($server)->can_read($seconds) ? $server->accept : undef;
	$connection->timeout($limit) if $connection;
	return $connection;
}

sub read_line
{
	my ($connection) = @_;

	local $SIG{ALRM} = sub { die "nothing arrives\n" };
	alarm $limit;
	my $line = <$connection>;
	alarm 0;
	return ($line // die "the connection ends\n") =~ s/\r?\n$//r;
}

# Receives a mail, or refuses it: text.
sub receive_mail
{
	my ($server, $seconds, $refuse) = @_;
	my $smtp = next_connection($server, $seconds) or return;
	my $mail = '';

	print $smtp "220 here\r\n";
	for (;;)
	{
		my $line = read_line($smtp);

		if ($line =~ /^QUIT/i) { print $smtp "221 bye\r\n"; return $mail }
		elsif ($refuse) { print $smtp "451 later\r\n"; close $smtp; return 'refused' }
		elsif ($line =~ /^DATA/i)
		{
			print $smtp "354 go on\r\n";
			$mail .= "$line\n" while ($line = read_line($smtp)) ne '.';
			print $smtp "250 received\r\n";
		}
		else { print $smtp "250 yes\r\n" }
	}
}

# Starts the listener: its call, and a running process.
my $script = PostgreSQL::Test::Utils::tempdir . '/listener.py';
my $said = '';

sub listener
{
	my ($call) = @_;

	unlink $script;
	append_to_file($script, "$code\n$call\n");
	my $listener = IPC::Run::start([ '/usr/bin/python3', $script ], '<', \undef, '>&', \$said);
	ok( defined await($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'ears' AND query LIKE 'SELECT token%' AND state = 'idle'}),
		'the listener listens') or diag $said;
	return $listener;
}

sub fail_run
{
	my ($name) = @_;

	$node->psql('postgres', "CALL shedlock_run('$name', 'SELECT 1 / 0')");
	return;
}

my $conninfo = 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres user=ears client_encoding=utf8';
my $smtp = server();
my $port = $smtp->sockport;

# The pause is long, so that only an event wakes the listener.
fail_run('old');
my $listener = listener(qq{listen("$conninfo", lambda *end: mail(*end, "127.0.0.1", $port), 600)});
is(receive_mail($smtp, 0), undef, 'what failed before is not mailed');
my $start = time;
fail_run('first');
my $mail = receive_mail($smtp, $limit);
cmp_ok(time - $start, '<', 2 * slowness($node), 'a mail arrives soon');
like($mail, qr/^Subject: failed first\n.*^began .* 22012 division by zero$/ms, '  and says what failed, and why');
$node->safe_psql('postgres', q{CALL shedlock_run('fine', 'SELECT 1'); NOTIFY shedlock, 'not even JSON'});
fail_run('näme');
like(receive_mail($smtp, $limit), qr/^Subject: failed =\?utf-8\?.*division by zero/ms, 'a success or a forged event is not mailed, but the next failure');
$listener->kill_kill(grace => 0);
await($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'ears'});

# Connections that break
$listener = listener(qq{listen("$conninfo", lambda *end: mail(*end, "127.0.0.1", $port), 1)});
$node->stop('immediate');
$node->start;
fail_run('while away');
like(receive_mail($smtp, $limit), qr/^Subject: failed while away$/m, 'what failed while the listener was away is mailed');
ok(defined await($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'ears'}), '  after it has connected again');
fail_run('refused');
is(receive_mail($smtp, $limit, 1), 'refused', 'the mail server refuses a mail');
like(receive_mail($smtp, $limit), qr/^Subject: failed refused$/m, '  which is sent again');
is(receive_mail($smtp, 1.5), undef, 'no mail comes twice');

# A run that died is told without an event, too.
my $session = session($node);
my $pid = pid_of($session);
$session->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('lost', 'SELECT pg_sleep(600)');\n");
defined await($node, "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $pid") or BAIL_OUT('the run does not begin');
terminate($node, $pid);
reap($session);
like(receive_mail($smtp, $limit), qr/^Subject: lost lost$/m, 'a lost run is mailed before the next one');
$listener->kill_kill(grace => 0);
await($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'ears'});

# A webhook
my $http = server();
$listener = listener(qq{listen("$conninfo", lambda *end: post(*end, "http://127.0.0.1:} . $http->sockport . q{/hook"), 600)});
fail_run('posted');
my $request = next_connection($http, $limit) or BAIL_OUT('nothing is posted');
my ($line, $length) = (read_line($request));
is($line, 'POST /hook HTTP/1.1', 'a failure is posted');
while (($line = read_line($request)) ne '')
{
	$length = $1 if $line =~ /^Content-Length: (\d+)/i;
}
read($request, my $body, $length);
like(JSON::PP->new->utf8->decode($body)->{text}, qr/^failed posted\nbegan .* division by zero$/, '  in JSON');
print $request "HTTP/1.1 204 No Content\r\n\r\n";
close $request;
$listener->kill_kill(grace => 0);

$node->stop;
done_testing();
