# Sessions end at their lock_at_most_for where the system has no POSIX timers,
# too: 003_session_deadline.pl with the library that is built for such systems.

use strict;
use warnings FATAL => 'all';
use FindBin;
use Test::More;

plan skip_all => 'this needs a library that does without POSIX timers: scripts/test builds it'
  unless $ENV{SHEDLOCK_NO_TIMERS} && -e $ENV{SHEDLOCK_NO_TIMERS};

$ENV{TEMP_CONFIG} = $ENV{SHEDLOCK_NO_TIMERS};
$ENV{SHEDLOCK_TIMER_THREAD} = 1;
exec $^X, "$FindBin::RealBin/003_session_deadline.pl" or die "exec: $!";
