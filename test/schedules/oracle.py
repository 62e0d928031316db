# Ticks by a walk through time, minute by minute, to compare with src/job/calendar.c.
#
#	python3 oracle.py SEED ROUNDS
#
# Writes random schedules in windows of time around changes of the clock, one a line, as
# COPY reads them: schedule, time zone, window (from and to, seconds since 1970, both
# inclusive), ticks, and when which offset from UTC begins in the window.
#
# The rule is that of Vixie's cron.  A schedule whose minute or hour begins with "*" is
# due in each minute that the clock shows and that matches.  Any other is due when the
# clock passes a matching time that it has not passed before: a change forward passes all
# times that it skips, and a change back passes times again.
#
# Periods are counted from 1970 on, in UTC, or from a time, before which there is no tick.  A
# local time that the clock skips is read as if it had not been changed yet, and one that it
# shows twice is the second of the two, as in PostgreSQL.

import random
import sys
from calendar import monthrange
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
EPOCH = datetime(1970, 1, 1)

# Changes by half an hour and less, by two and three hours, at midnight, a minute after
# midnight, by a whole day, and several a year
ZONES = {
    'UTC': (), 'Europe/Berlin': (), 'America/New_York': (), 'Europe/London': (),
    'America/St_Johns': ('2006-04-02', '2006-10-29', '1988-04-03', '1988-10-30'),
    'Australia/Lord_Howe': ('2026-04-05', '2026-10-04'),
    'Antarctica/Troll': ('2026-03-29', '2026-10-25'),
    'Antarctica/Casey': ('2009-10-18', '2010-03-05', '2018-03-11'),
    'Africa/Casablanca': ('2018-05-13', '2018-06-17', '2026-02-15', '2026-03-22'),
    'Africa/Cairo': ('2010-08-11', '2010-09-10', '2026-04-24', '2026-10-30'),
    'America/Santiago': ('2026-04-05', '2026-09-06'), 'America/Sao_Paulo': ('2017-10-15', '2018-02-18'),
    'America/Havana': ('2026-03-08', '2026-11-01'), 'America/Caracas': ('2007-12-09', '2016-05-01'),
    'Pacific/Apia': ('2011-12-30', '2012-04-01', '2011-09-24'), 'Pacific/Kwajalein': ('1993-08-21',),
    'Pacific/Chatham': (), 'Asia/Kathmandu': ('1986-01-01',), 'Asia/Tehran': ('2021-03-22', '2021-09-22'),
    'Asia/Pyongyang': ('2015-08-15', '2018-05-05'), 'Asia/Gaza': (), 'America/Nuuk': ('2023-03-26', '2023-10-29'),
}
FIELDS = ((0, 59, ''), (0, 23, ''), (1, 31, ''),
          (1, 12, 'jan feb mar apr may jun jul aug sep oct nov dec'), (0, 7, 'sun mon tue wed thu fri sat'))


def offset(zone, second):
    return int(datetime.fromtimestamp(second, zone).utcoffset().total_seconds())


def local_minutes(zone, begin, end):
    """Minutes in UTC, and the local time that the clock shows in each, as minutes since 1970."""
    for hour in range(begin, end, HOUR):
        here = offset(zone, hour)
        if offset(zone, hour + HOUR) == here:
            for second in range(hour, min(hour + HOUR, end), MINUTE):
                yield second, (second + here) // MINUTE
        else:
            for second in range(hour, min(hour + HOUR, end), MINUTE):
                yield second, (second + offset(zone, second)) // MINUTE


def values(text, low, high, names):
    result = set()
    for part in text.lower().split(','):
        rng, _, step = part.partition('/')
        first, dash, last = rng.partition('-')
        number = [names.split().index(v) + low if v in names.split() else int(v) if v != '*' else None
                  for v in (first, last or first)]
        result.update(range(low if number[0] is None else number[0],
                            (high if number[1] is None else number[1]) + 1, int(step or 1)))
    return result


class Schedule:
    def __init__(self, text):
        field = text.split()
        self.fixed = field[0][0] != '*' and field[1][0] != '*'
        self.both = field[2][0] == '*' or field[4][0] == '*'
        self.last_day = field[2] == '$'
        if self.last_day:
            field[2] = '1'
        self.minute, self.hour, self.day, self.month, self.weekday = (values(f, *v) for f, v in zip(field, FIELDS))
        if self.last_day:
            self.day = set()
        if 7 in self.weekday:
            self.weekday.add(0)
        self.days = {}

    def matches_day(self, number):
        if number not in self.days:
            date = EPOCH + timedelta(days=number)
            day = date.day in self.day or (self.last_day and date.day == monthrange(date.year, date.month)[1])
            weekday = date.isoweekday() % 7 in self.weekday
            self.days[number] = date.month in self.month and ((day and weekday) if self.both else (day or weekday))
        return self.days[number]

    def matches(self, minute):
        return (minute % 60 in self.minute and minute // 60 % 24 in self.hour and
                self.matches_day(minute // 1440))


def ticks(schedule, minutes):
    passed = minutes[0][1]
    for second, local in minutes:
        if not schedule.fixed:
            if schedule.matches(local):
                yield second
        elif local > passed:
            if any(schedule.matches(m) for m in range(passed + 1, local + 1)):
                yield second
            passed = local


def random_field(rand, number, favourite):
    low, high, names = FIELDS[number]

    def value():
        return favourite if rand.random() < 0.6 else rand.randint(low, high)

    def show(v):
        name = names.split()[(v - low) % 7 if number == 4 else v - low] if names and rand.random() < 0.4 else str(v)
        return name if not (number == 4 and v == 7) else '7'

    def span():
        a, b = sorted((value(), value()))
        return '%s-%s' % (show(a), show(b))

    def item():
        return rand.choice((lambda: show(value()), lambda: show(value()), span, lambda: '%s/%d' % (span(), rand.randint(1, 7)),
                            lambda: '*/%d' % rand.randint(1, high)))()

    chance = rand.random()
    if number == 2 and chance < 0.08:
        return '$'
    if chance < (0.1, 0.25, 0.55, 0.7, 0.5)[number]:
        return '*'
    return ','.join(item() for _ in range(rand.choice((1, 1, 1, 2, 3))))


def has_day(schedule):
    """Whether a day can match; shedlock refuses a schedule of which none does, such as a 31st of April."""
    return (not schedule.both or schedule.last_day or
            any(min(schedule.day) <= monthrange(2000, month)[1] for month in schedule.month))


def random_schedule(rand, near):
    favourite = (near.minute, near.hour, near.day, near.month, near.isoweekday() % 7)
    while True:
        text = ' '.join(random_field(rand, i, v) for i, v in enumerate(favourite))
        if has_day(Schedule(text)):
            return text


UNITS = ((1, ('s', 'sec', ' second', 'seconds')), (MINUTE, ('m', ' min', 'minutes')),
         (HOUR, ('h', ' hour', ' hours')), (DAY, ('d', ' day', ' days')))


def random_period(rand, least):
    """An interval of at least so many seconds, and its length."""
    while True:
        length = 0
        parts = []
        for (unit, names), most in sorted(zip(UNITS, (90, 90, 30, 20)), key=lambda _: rand.random())[:rand.choice((1, 1, 2, 3))]:
            number = rand.randint(1, most)
            length += number * unit
            parts.append('%d%s' % (number, rand.choice(names)))
        if length >= least:
            return ' '.join(parts), length


def random_from(rand, zone, near):
    """A time, local or with its offset from UTC, and its second since 1970."""
    time = near.replace(second=rand.choice((0, 0, near.second, rand.randrange(60))))
    seconds = ':%02d' % time.second if time.second or rand.random() < 0.2 else ''
    text = time.strftime('%Y-%m-%d') + rand.choice(' T') + time.strftime('%H:%M') + seconds
    kind = rand.random()
    if kind < 0.15:
        text = time.strftime('%Y-%m-%d')
        time = datetime(time.year, time.month, time.day)
    second = int((time - EPOCH).total_seconds())
    if 0.15 <= kind < 0.3:
        return text + 'Z', second
    if 0.3 <= kind < 0.5:
        hours, minutes = rand.randint(0, 14), rand.choice((0, 0, 15, 30, 45))
        sign = rand.choice((-1, 1))
        return (text + '%s%02d' % ('-' if sign < 0 else '+', hours) + (':%02d' % minutes if minutes or rand.random() < 0.5 else ''),
                second - sign * (hours * HOUR + minutes * MINUTE))
    before, behind = (int(time.replace(tzinfo=zone, fold=fold).utcoffset().total_seconds()) for fold in (0, 1))
    return text, second - min(before, behind)


def random_every(rand, zone, near, begin, end):
    """A schedule of periods, its time zone, and its ticks from begin to end."""
    interval, period = random_period(rand, (end - begin) // 5000)
    text, name, first = 'every %s' % interval, 'UTC', None
    if rand.random() < 0.8:
        time, first = random_from(rand, zone, near)
        text += ' from ' + time
        if time[10:].count(':') == 0 or time[-1] != 'Z' and not any(sign in time[10:] for sign in '+-'):
            name = zone.key
    start = first if first is not None else 0
    ticks_of = range(start + (begin - start + period - 1) // period * period, end + 1, period)
    return text, name, [second for second in ticks_of if first is None or second >= first]


def change_near(zone, second):
    """The first change of the clock after that, to the hour; or that."""
    for hour in range(second, second + 400 * DAY, 6 * HOUR):
        if offset(zone, hour) != offset(zone, hour + 6 * HOUR):
            return hour
    return second


def window(rand, zone, days):
    """A time in which the clock changes, if it does, with another before or behind it."""
    if days and rand.random() < 0.5:
        middle = int(datetime.fromisoformat(rand.choice(days)).replace(tzinfo=timezone.utc).timestamp())
    else:
        middle = change_near(zone, rand.randrange(1975 * 12, 2037 * 12) // 12 * 31556952 - 1970 * 31556952)
    if rand.random() < 0.05:
        return middle - 40 * DAY, middle + rand.choice((40, 40, 400)) * DAY
    # It may begin in the middle of a change.
    return middle - rand.randrange(0, 4 * 24 * 60) * MINUTE, middle + rand.randrange(3 * 24 * 60, 6 * 24 * 60) * MINUTE


def show(text, zone, begin, end, found, offsets):
    print(text, zone, begin, end, '{%s}' % ','.join(map(str, found)),
          '{%s}' % ','.join(str(second) for second, _ in offsets),
          '{%s}' % ','.join(str(seconds) for _, seconds in offsets), sep='\t')


def main():
    rand = random.Random(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        for name, days in ZONES.items():
            zone = ZoneInfo(name)
            begin, end = window(rand, zone, days)
            begin = begin // MINUTE * MINUTE
            end = end // MINUTE * MINUTE
            # Before the window the clock has passed times that it can show again.
            minutes = list(local_minutes(zone, begin - 2 * DAY, end + MINUTE))
            offsets = []
            for second, local in minutes:
                if not offsets or offsets[-1][1] != local * MINUTE - second:
                    offsets.append((second, local * MINUTE - second))
            near = EPOCH + timedelta(seconds=offsets[-1][0] + rand.choice((offsets[-1][1], offsets[-2 % len(offsets)][1])) +
                                     rand.randint(-90, 90) * MINUTE)
            for _ in range(8):
                text = random_schedule(rand, near)
                show(text, name, begin, end, [second for second in ticks(Schedule(text), minutes) if second >= begin], offsets)
            for _ in range(4):
                text, where, found = random_every(rand, zone, near, begin, end)
                show(text, where, begin, end, found, offsets if where == name else [(begin - 2 * DAY, 0)])


main()
