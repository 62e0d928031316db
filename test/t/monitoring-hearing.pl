# The commands, watchers, unit and Deployment of doc/hearing.md tell a mail server, a chat and a
# ping service, by Debian's msmtp and curl, of each problem that begins and of its end; what a
# server refuses comes again.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use HostProgram;
use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use MIME::Base64;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $limit = $PostgreSQL::Test::Utils::timeout_default;
my $page = slurp_file('doc/hearing.md');
my @without = grep { !found($_) } 'sendmail', 'curl', 'jq';
plan skip_all => 'this system does not have the program shedlock' if !defined program_path();
plan skip_all => "this needs @without" if @without;

# Names beyond ASCII need a database that knows its encoding.
$ENV{LANG} = 'C.UTF-8';
my $dir = PostgreSQL::Test::Utils::tempdir;

sub found
{
	my ($program) = @_;

	return scalar grep { -x "$_/$program" } split(/:/, $ENV{PATH}), '/usr/sbin';
}

#
# Servers of other protocols, in a process that writes down what they get
#

my @sockets = map { IO::Socket::INET->new(Listen => 20, LocalAddr => '127.0.0.1', ReuseAddr => 1) || die "listen: $!" } 'smtp', 'http';
my %port = (smtp => $sockets[0]->sockport, http => $sockets[1]->sockport);

sub read_line
{
	my ($client) = @_;
	my $line = <$client> // die "the connection ends\n";

	return $line =~ s/\r?\n\z//r;
}

# Writes down what came from a client; in one go, because the test reads at any time.
sub note_down
{
	my (@what) = @_;

	open my $file, '>>', "$dir/heard" or die "heard: $!";
	syswrite $file, JSON::PP->new->latin1->encode(\@what) . "\n" or die "heard: $!";
	close $file;
	return;
}

# Receives a mail, or refuses it for now.
sub receive_mail
{
	my ($client) = @_;
	my $mail = '';

	print $client "220 here\r\n";
	while ((my $line = read_line($client)) !~ /^QUIT/i)
	{
		if ($line =~ /^RCPT/i && -e "$dir/refuse")
		{
			note_down('refused mail');
			print $client "451 later\r\n";
		}
		elsif ($line =~ /^DATA/i)
		{
			print $client "354 go on\r\n";
			$mail .= $line =~ s/^\.//r . "\n" while ($line = read_line($client)) ne '.';
			note_down('mail', $mail);
			print $client "250 received\r\n";
		}
		else { print $client "250 yes\r\n" }
	}
	print $client "221 bye\r\n";
	return;
}

# Receives a request: a post to the chat, or a ping.
sub receive_request
{
	my ($client) = @_;
	my ($method, $path) = read_line($client) =~ /^(\S+) (\S+)/;
	my ($length, $body, $line) = (0, '');

	$length = $line =~ /^Content-Length: (\d+)/i ? $1 : $length while ($line = read_line($client)) ne '';
	read($client, $body, $length) == $length or die "the body ends\n" if $length > 0;
	if ($method eq 'POST' && -e "$dir/refuse")
	{
		note_down('refused post');
		print $client "HTTP/1.1 503 Later\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
		return;
	}
	note_down(lc $method, $path, $body);
	print $client "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
	return;
}

my $servers = fork // die "fork: $!";
if ($servers == 0)
{
	my $select = IO::Select->new(@sockets);

	@SIG{qw(TERM INT HUP)} = ('DEFAULT') x 3;
	local $SIG{PIPE} = 'IGNORE';
	while (getppid != 1)
	{
		foreach my $socket ($select->can_read(1))
		{
			my $client = $socket->accept or next;

			$client->autoflush(1);
			eval { $socket == $sockets[0] ? receive_mail($client) : receive_request($client) };
			close $client;
		}
	}
	POSIX::_exit(0);
}

END
{
	local $? = $?;
	if ($servers)
	{
		kill 'KILL', $servers;
		waitpid $servers, 0;
	}
}

# Returns what came of a kind; in scalar context how many.
sub heard
{
	my ($kind) = @_;
	my @all = -e "$dir/heard" ? map { JSON::PP->new->latin1->decode($_) } split /\n/, slurp_file("$dir/heard") : ();

	@all = grep { $_->[0] eq $kind } @all;
	return @all;
}

# Waits for the n-th of a kind; n counts from 0.  Returns it.
sub await_heard
{
	my ($kind, $n) = @_;

	eventually(sub { heard($kind) > $n }) or BAIL_OUT("$kind $n does not come");
	return (heard($kind))[$n];
}

# Returns "subject | body" of a mail.
sub mail_text
{
	my ($mail) = @_;
	my ($head, $body) = $mail->[1] =~ /\A(.*?)\n\n(.*)\z/s or return "no mail: $mail->[1]";
	my ($subject) = $head =~ /^Subject: =\?UTF-8\?B\?(\S+)\?=$/m or return "no subject: $head";

	return decode_base64($subject) . " | $body";
}

# Returns the text of a post to the chat.
sub chat_text
{
	my ($post) = @_;
	my $text = JSON::PP->new->utf8->decode($post->[2])->{text};

	utf8::encode($text);
	return $text;
}

#
# The page
#

# Replaces what the page has as examples by what is here.  curl has longer on a slow machine.
sub here
{
	my ($text) = @_;

	return $text =~ s{https://(?:chat|ping)\.example\.org}{http://127.0.0.1:$port{http}}gr =~ s/--max-time 8\b/--max-time $limit/gr;
}

my $node = start_node('main');
my (%script, @calls);
foreach my $block ($page =~ /^```sh hear\n(.*?)^```$/msg)
{
	if ($block =~ m{\A#!/bin/sh -e\n# /usr/local/bin/(\S+)\n})
	{
		$script{$1} = $block;
		append_to_file("$dir/$1", here($block));
		chmod 0755, "$dir/$1";
	}
	else { push @calls, split /\n/, $block }
}
is_deeply([ sort keys %script ], [ 'tell', 'tell-chat', 'tell-mail' ], 'the page has three commands');
is(scalar @calls, 3, 'it calls the program three times');
my ($unit) = $page =~ m{^ExecStart=/usr/local/bin/(shedlock .*)$}m;
my ($args) = $page =~ /^ *args: \[(.*)\]$/m;
unlike($unit, qr/[%\$]/, 'systemd replaces nothing in its call');

my ($msmtprc) = $page =~ /^```msmtprc\n(.*?)^```$/ms;
append_to_file("$dir/.msmtprc", $msmtprc =~ s/^host .*/host 127.0.0.1/mr =~ s/^port .*/port $port{smtp}/mr);
my ($service) = slurp_file('doc/hosts.md') =~ /^```ini\n(.*?)^```$/ms;
append_to_file("$dir/service", $service =~ s/^host=.*/'host=' . $node->host . "\nport=" . $node->port/mer =~ s/^dbname=.*/dbname=postgres/mr);
my ($grants, $rehearsal, @more) = $page =~ /^```sql\n(.*?)^```$/msg;
is(scalar @more, 0, 'the page has two blocks of SQL');
$node->safe_psql('postgres', $grants);

# Returns the words that a shell makes of a call, without the first one.
sub words
{
	my ($call) = @_;
	my ($out) = run_command([ 'sh', '-c', "printf '%s\\n' " . here($call) ]);
	my ($program, @words) = split /\n/, $out;

	is($program, 'shedlock', "a call of the program: $call");
	return @words;
}

# Starts a watcher as the page says it, but with shorter times between its looks.
sub watcher
{
	my @arguments = ('--every=1s', @_);

	return start_program($node,
		{ environment => { PATH => "$dir:$ENV{PATH}", HOME => $dir, PGSERVICEFILE => "$dir/service", PGUSER => 'watcher' } }, @arguments);
}

# Ends watchers that have nothing to tell any more.
sub end
{
	my (@watchers) = @_;

	defined await($node, 'SELECT count(*) = 0 FROM _shedlock_told WHERE NOT begin_told OR over_at IS NOT NULL')
	  or BAIL_OUT('something is not told');
	$_->signal('TERM') foreach @watchers;
	is($_->finish, 0, 'a watcher ends with exit status 0') or diag $_->err foreach @watchers;
	return;
}

# Lets the only attempt of a job fail, so that it gives up.
sub give_up
{
	my ($name, $description) = @_;

	$node->safe_psql('postgres', "SELECT shedlock_job('$name', 'every 20000 days', description => '$description')");
	$node->psql('postgres', "CALL shedlock_run('$name', 'SELECT 1 / 0')");
	return;
}

#
# Five minutes
#

$node->safe_psql('postgres', 'SET ROLE watcher; SELECT shedlock_news(), shedlock_tell($$$$, $$$$, now(), $$$$)');
give_up('first', 'the first one');
my $dry = watcher(words($calls[0]));
is($dry->finish, 0, 'a dry run succeeds') or diag $dry->err;
is(JSON::PP->new->decode((grep { /^\{/ } split /\n/, $dry->out)[0] // '{}')->{name}, 'first', '  and shows what would be told');
my ($example) = $page =~ /^```json\n(.*?)^```$/ms;
is_deeply([ sort keys %{ JSON::PP->new->decode($example) } ], [ sort keys %{ JSON::PP->new->decode((grep { /^\{/ } split /\n/, $dry->out)[0]) } ],
	'the page shows a line as it is');

my $watcher = watcher(words($calls[1]));
like(mail_text(await_heard('mail', 0)),
	qr/^first: gave up \(begun\) \| begun: The attempts of "first" are over, and none has succeeded\nsince \d{4}-\S+\nthe first one\n\z/,
	'a mail tells of a problem that was there before');
like((heard('mail'))[0][1], qr/^From: shedlock\@example\.org\nTo: on-call\@example\.org$/m, '  from and to whom the page says');
is($node->safe_psql('postgres', $rehearsal =~ s/^(.*?;).*?^(.*?;).*/$1 $2/msr), "created\nt", 'a rehearsal fails');
like(mail_text(await_heard('mail', 1)), qr/^rehearsal: gave up \(begun\) \| /, '  and is told');
my ($forget) = $rehearsal =~ /^(SELECT shedlock_forget\(.*?;)/m;
is($node->safe_psql('postgres', $forget), 't', 'it is forgotten');
like(mail_text(await_heard('mail', 2)), qr/^rehearsal: gave up \(over\) \| over: The attempts/, '  and its end is told');

# A job can have any name; a shell must not read it.
my $name = q(näme "q" $(touch pwned) `touch pwned` %s \\n);
give_up($name, '.');
like(mail_text(await_heard('mail', 3)), qr/^\Q$name\E: gave up \(begun\) \| .*\n\.\n\z/s, 'a name with anything in it arrives');
ok(!-e 'pwned' && !-e "$dir/pwned", '  and nothing executes it');

# A mail server that says "later"
append_to_file("$dir/refuse", '');
give_up('later', 'after a while');
await_heard('refused mail', 1);
unlink "$dir/refuse";
like(mail_text(await_heard('mail', 4)), qr/^later: gave up \(begun\) \| /, 'a mail that is refused is sent again');
end($watcher);
is(scalar heard('mail'), 5, 'no mail comes twice');

#
# Mail, chat and ping
#

# The watcher has told what began; the next one tells what is over.
is(scalar heard('get'), 0, 'nothing has pinged yet');
$node->safe_psql('postgres', "SELECT shedlock_forget('later')");
$watcher = watcher(words($calls[2]));
is(chat_text(await_heard('post', 0)), qq(over: The attempts of "later" are over, and none has succeeded\nafter a while), 'the chat is told of an end, by the next watcher');
is((heard('post'))[0][1], '/hooks/secret', '  at its address');
like(mail_text(await_heard('mail', 5)), qr/^later: gave up \(over\) \| /, 'and so is the mail');
is(await_heard('get', 0)->[1], '/secret', 'when all is told, the service is pinged');
end($watcher);

# As systemd starts it, from two hosts
append_to_file("$dir/refuse", '');
give_up($name . $_, '') foreach 2;
my @watchers = map { watcher(words($unit)) } 1, 2;
await_heard('refused post', 1);
my $pings = heard('get');
unlink "$dir/refuse";
is(chat_text(await_heard('post', 1)), qq(begun: The attempts of "${name}2" are over, and none has succeeded), 'the unit: what the chat refuses comes again');
await_heard('mail', 6);
await_heard('get', $pings);
is_deeply([ grep { $_->[1] ne '/secret' } heard('get') ], [], '  then the service is pinged');
$node->safe_psql('postgres', "SELECT shedlock_job('at work', 'every 1 day', slow_after => '1 s'); SELECT FROM shedlock_run_begin('at work', '1 h')");
is(chat_text(await_heard('post', 2)), 'begun: A run of "at work" has been at work for longer than 00:00:01', 'a slow run is told in the chat');
is(scalar heard('mail'), 7, '  and nobody gets a mail');
end(@watchers);

# As Kubernetes starts it, in two pods, whose call has the connection in its environment
@watchers = map { watcher(words(join ' ', 'shedlock', map { s/"/'/gr } $args =~ /"[^"]*"/g)) } 1, 2;
$node->safe_psql('postgres', "SELECT shedlock_run_end('at work', token) FROM shedlock_history WHERE name = 'at work'");
is(chat_text(await_heard('post', 3)), 'over: A run of "at work" has been at work for longer than 00:00:01', 'the Deployment: its end is told');
my ($holder) = $node->safe_psql('postgres', q{SELECT split_part(split_part(locked_by, '/', 2), ' ', 1) FROM shedlock_locks WHERE name = 'shedlock-watch'});
my ($first, $second) = sort { ($b->pid == $holder) <=> ($a->pid == $holder) } @watchers;
$first->signal('TERM');
is($first->finish, 0, 'one pod is told to end') or diag $first->err;
$node->safe_psql('postgres', "SELECT shedlock_forget('first')");
is(chat_text(await_heard('post', 4)), qq(over: The attempts of "first" are over, and none has succeeded\nthe first one), '  and the other one goes on');
await_heard('mail', 7);
end($second);
is(scalar heard('post') . ' ' . scalar heard('mail'), '5 8', 'nothing came twice');

$node->stop;
done_testing();
