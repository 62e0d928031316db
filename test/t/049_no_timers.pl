# Sessions also end at their lock_at_most_for on systems without POSIX timers: runs
# 003_session_deadline.pl with the library built for such systems.

use strict;
use warnings FATAL => 'all';
use FindBin;
use Test::More;

plan skip_all => 'this needs a library without POSIX timers: scripts/test builds it'
  unless $ENV{SHEDLOCK_NO_TIMERS} && -e $ENV{SHEDLOCK_NO_TIMERS};

$ENV{TEMP_CONFIG} = $ENV{SHEDLOCK_NO_TIMERS};
$ENV{SHEDLOCK_TIMER_THREAD} = 1;
exec $^X, "$FindBin::RealBin/003_session_deadline.pl" or die "exec: $!";
