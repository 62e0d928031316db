"""A server that speaks PostgreSQL's protocol, and at one step answers as no server should.

It knows the statements of the program shedlock, and answers them as a server with the
extension does: a run begins, is extended, and ends.  An act is what it does instead at one
step: see ACTS.  It notes in a file what it has granted, and when it was asked for that.
"""
import os
import random
import signal
import socket
import struct
import time

PID = 4242
TOKEN = 77
BIG = 1_000_000

# How long the lock is held, in microseconds: longer than any program asks for
LEASE = '3600000000 f'

# The answers of a server with the extension; the values are those of one row.
PROPER = {
    'schema': ['sl'],
    'job': ['unchanged'],
    'begin': [TOKEN, 1, None, '2026-11-25T03:00:00.000000', PID, 'begun', None, LEASE],
    'listen': None,
    'extend': ['t', PID, LEASE],
    'end': ['t', PID],
    'check': ['25006'],
    'ticks': ['Wed 2026-11-25 03:00, Thu 2026-11-26 03:00, Fri 2026-11-27 03:00'],
    'why': ['It was never held.'],
}

# Acts that have the proper answer
PROPER_ACTS = ('byte by byte', 'late', 'many notices', 'notifications of the run', 'notifications of others')

# What a statement has, by which it is known
MARKS = [('shedlock_job', 'job'), ('shedlock_run_begin', 'begin'), ('shedlock_run_end', 'end'), ('shedlock_extend', 'extend'),
         ('pg_extension', 'schema'), ('LISTEN', 'listen'), ('shedlock_next_tick', 'ticks'), ('shedlock_why', 'why')]

CLASSES = ['01000', '08006', '22023', '25006', '28000', '40001', '42501', '53300', '55P03', '57014', '57P01', '57P03',
           'XX000', '?', '']


def message(kind, body=b''):
    return kind + struct.pack('!I', len(body) + 4) + body


def text(value):
    return (value if isinstance(value, bytes) else str(value).encode()) + b'\0'


def row_of(values):
    body = struct.pack('!H', len(values))
    for value in values:
        if value is None:
            body += struct.pack('!i', -1)
        else:
            data = text(value)[:-1]
            body += struct.pack('!I', len(data)) + data
    return message(b'D', body)


def head_of(columns):
    body = struct.pack('!H', columns)
    for number in range(columns):
        body += text('c%d' % number) + struct.pack('!IHIhih', 0, 0, 25, -1, -1, 0)
    return message(b'T', body)


def rows_of(columns, rows):
    return head_of(columns) + b''.join(map(row_of, rows)) + message(b'C', text('SELECT %d' % len(rows)))


def fields(kind, severity, code, primary, **others):
    body = b'S' + text(severity) + b'V' + text(severity) + b'C' + text(code) + b'M' + text(primary)
    for name, value in others.items():
        body += name.encode() + text(value)
    return message(kind, body + b'\0')


def error(code, primary, severity='ERROR', **others):
    return fields(b'E', severity, code, primary, **others)


def warning(primary):
    return fields(b'N', 'WARNING', '01000', primary, D='\x1b[2J\x7f\u009b2J detail', R='somewhere')


def notification(payload):
    return message(b'A', struct.pack('!I', PID) + text('shedlock') + text(payload))


READY = message(b'Z', b'I')
SETS = message(b'C', text('SET')) * 3
PARAMETERS = {'server_version': '15.20', 'server_encoding': 'UTF8', 'client_encoding': 'UTF8',
              'default_transaction_read_only': 'off', 'in_hot_standby': 'off', 'standard_conforming_strings': 'on',
              'session_authorization': 'x', 'integer_datetimes': 'on'}


def parameter(name, value):
    return message(b'S', text(name) + text(value))


class Connection:
    """One connection, which is served until it ends."""

    def __init__(self, server, client):
        self.server = server
        self.client = client
        self.rng = server.rng

    def send(self, *parts):
        for part in parts:
            self.client.sendall(part)

    def receive(self, length):
        data = b''
        while len(data) < length:
            more = self.client.recv(length - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def without_end(self, part):
        while True:
            self.send(part)

    def silent(self):
        while self.client.recv(65536):
            pass
        raise ConnectionError

    def close(self):
        raise ConnectionError

    # What it does at a step.  proper: bytes of the proper answer; values: of its row.

    def act(self, name, proper, values):
        rng = self.rng
        columns = len(values or [])
        noise = ''.join(rng.choice(['x', '\n', '\x1b[31m', '\x07', 'shedlock: all is well', '\u00e4', "'"]) for _ in range(40))
        if name == 'silence':
            self.silent()
        elif name == 'close':
            self.close()
        elif name in ('half', 'half, close'):
            self.send(proper[:rng.randrange(1, max(2, len(proper)))])
            self.silent() if name == 'half' else self.close()
        elif name == 'byte by byte':
            for at in range(len(proper)):
                self.send(proper[at:at + 1])
                time.sleep(0.002)
        elif name in ('garbage', 'garbage, close'):
            self.send(rng.randbytes(rng.choice([1, 5, 100, 5000])))
            self.silent() if name == 'garbage' else self.close()
        elif name == 'changed byte':
            at = rng.randrange(len(proper))
            self.send(proper[:at], bytes([proper[at] ^ 1 << rng.randrange(8)]), proper[at + 1:])
        elif name == 'endless message':
            self.send(rng.choice([b'D', b'E', b'N', b'T', b'A', b'S', b'R']) + rng.choice([b'\x7f\xff\xff\xff', b'\x3f\0\0\0', b'\xff\xff\xff\xff']))
            self.without_end(b'x' * BIG)
        elif name.startswith('copy'):
            kind = {'copy in': b'G', 'copy out': b'H', 'copy both': b'W'}[name]
            self.send(SETS, message(kind, b'\0\0\0'), rng.choice([b'', READY, message(b'd', b'x' * 1000) * 100]))
            if rng.random() < 0.3:
                self.without_end(message(b'd', b'x' * 1000) * 100)
        elif name == 'no row':
            self.send(SETS, rows_of(columns, []), READY)
        elif name == 'two rows':
            self.send(SETS, rows_of(columns, [values or []] * 2), READY)
        elif name == 'too few columns':
            few = rng.randrange(columns) if columns else 0
            self.send(SETS, rows_of(few, [(values or [])[:few]]), READY)
        elif name == 'too many columns':
            self.send(SETS, rows_of(columns + 1, [(values or []) + ['t']]), READY)
        elif name == 'nulls':
            self.send(SETS, rows_of(columns, [[None] * columns]), READY)
        elif name == 'wrong types':
            wrong = ['', 'maybe', 'true', '-5', '0', '9' * 100, '1.5', '0' * 1000, '.', noise, None, b'\xff\xfe', 'x' * BIG]
            at = rng.randrange(columns or 1)
            self.send(SETS, rows_of(columns, [[rng.choice(wrong) if i == at or rng.random() < 0.3 else v for i, v in enumerate(values or [])]]), READY)
        elif name == 'large value':
            self.send(SETS, rows_of(columns, [['x' * 100 * BIG] + (values or [])[1:]]), READY)
        elif name == 'rows without end':
            self.send(SETS, head_of(columns))
            self.without_end(row_of(['x' * rng.choice([1, 100, BIG])] * columns))
        elif name == 'notices without end':
            self.without_end(warning(noise + 'w' * rng.choice([1, 500, 20_000])) * 50)
        elif name == 'many notices':
            self.send(warning(noise + 'w' * 500) * 2000, proper)
        elif name == 'parameters without end':
            number = 0
            while True:
                number += 100
                self.send(b''.join(parameter('p%d' % (number + i), 'v' * 1000) for i in range(100)))
        elif name.startswith('notifications'):
            payload = '{"token": "%d"}' % (TOKEN if name == 'notifications of the run' else 5) + ' ' * rng.choice([1, 100, 7000])
            self.send(proper)
            self.without_end(notification(payload) * 50)
        elif name == 'error':
            self.send(SETS, error(rng.choice(CLASSES), noise, D=noise, H=noise), READY)
        elif name == 'large error':
            self.send(error(rng.choice(CLASSES), 'e' * 20 * BIG), READY)
        elif name == 'fatal':
            self.send(error(rng.choice(CLASSES), noise, severity='FATAL'))
            self.close()
        elif name == 'no fields':
            self.send(message(b'E', b'\0'), READY)
        elif name == 'nothing':
            self.send(READY)
        elif name == 'only settings':
            self.send(SETS, READY)
        elif name == 'empty query':
            self.send(message(b'I'), READY)
        elif name == 'another answer after it':
            self.send(proper[:-len(READY)], rows_of(1, [['x']]), READY)
        elif name == 'late':
            time.sleep(rng.random())
            self.send(proper)
        elif name == 'authentication':
            self.send(message(b'R', struct.pack('!I', rng.choice([2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 99, 2**32 - 1])) + rng.randbytes(rng.choice([0, 4, 20]))))
            self.silent()
        elif name == 'authentication without end':
            self.without_end(message(b'R', struct.pack('!I', 0)))
        else:
            raise ValueError(name)
    def do(self, step, proper, values=None, asked=0):
        """Answers a step, and notes before whether the program may take that as granted."""
        name = self.server.act_at(step)
        if name is None or name in PROPER_ACTS:
            self.server.note(step, 'proper', asked)
        elif name in ('changed byte', 'wrong types'):
            self.server.note(step, 'unknown', asked)
        if name is None:
            self.send(proper)
        else:
            self.act(name, proper, values)
        return name is None or name in PROPER_ACTS

    def start(self):
        while True:
            length, code = struct.unpack('!II', self.receive(8))
            self.receive(length - 8)
            if code in (80877103, 80877104):
                self.send(b'N')
            elif code == 80877102:
                self.do('cancel', b'')
                self.close()
            else:
                break
        ok = message(b'R', struct.pack('!I', 0))
        if not self.do('startup', ok):
            self.silent()
        settings = b''.join(parameter(*pair) for pair in PARAMETERS.items())
        if not self.do('settings', settings + message(b'K', struct.pack('!II', PID, 99)) + READY):
            self.silent()

    def serve(self):
        self.start()
        while True:
            kind, length = struct.unpack('!cI', self.receive(5))
            query = self.receive(length - 4)
            if kind == b'X':
                self.close()
            if kind != b'Q':
                continue
            asked = time.clock_gettime(time.CLOCK_BOOTTIME)
            words = query.rstrip(b'\0').decode(errors='replace')
            step = next((step for mark, step in MARKS if mark in words), 'other')
            if step in ('job', 'begin') and 'transaction_read_only' in words:
                step = 'check'
            values = PROPER.get(step)
            if step == 'begin' and not self.server.has_tick:
                values = [TOKEN, None, None, None, PID, 'begun', None, LEASE]
            if step == 'listen' or step == 'other':
                proper = SETS + message(b'C', text('LISTEN')) + READY
            elif step == 'check':
                proper = SETS + error('25006', 'read-only') + READY
            else:
                proper = SETS + rows_of(len(values), [values]) + READY
            self.do(step, proper, values, asked)


class Server:
    """Serves all connections of one folder, each in a process of its own."""

    def __init__(self, folder, step, act, first, times, has_tick, seed):
        self.folder = folder
        self.step = step
        self.name = act
        self.first = first
        self.times = times
        self.has_tick = has_tick
        self.rng = random.Random(seed)

    def note(self, *words):
        with open(self.folder + '/notes', 'a') as file:
            file.write(' '.join(map(str, words)) + '\n')

    def act_at(self, step):
        """What to do at this step instead of the proper answer, or None."""
        if self.step == 'cancel' and step == 'begin':
            return 'silence'
        if self.step == 'reconnect' and step == 'end':
            return 'close'
        if step != ('settings' if self.step == 'reconnect' else self.step):
            return None
        with open(self.folder + '/steps', 'ab+') as file:
            file.write(b'.')
            file.flush()
            count = file.tell()
        return self.name if self.first <= count < self.first + self.times else None

    def run(self):
        """Never returns."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.folder + '/.s.PGSQL.5432')
        listener.listen(100)
        number = 0
        while True:
            client, _ = listener.accept()
            number += 1
            if os.fork() > 0:
                client.close()
                continue
            listener.close()
            self.rng.seed(self.rng.random() + number)
            try:
                Connection(self, client).serve()
            except OSError:
                pass
            os._exit(0)


# reconnect: the settings of each connection after the first one, which breaks at the end
STEPS = ['startup', 'settings', 'schema', 'job', 'begin', 'listen', 'extend', 'end', 'reconnect', 'cancel', 'check', 'ticks', 'why']

# For any step, for statements only, and for the start of a connection only
ACTS = ['silence', 'close', 'half', 'half, close', 'byte by byte', 'garbage', 'garbage, close', 'endless message',
        'notices without end', 'parameters without end', 'notifications of the run', 'notifications of others', 'error',
        'large error', 'fatal', 'no fields', 'late']
STATEMENT_ACTS = ['changed byte', 'copy in', 'copy out', 'copy both', 'no row', 'two rows', 'too few columns', 'too many columns', 'nulls',
                  'wrong types', 'large value', 'rows without end', 'many notices', 'nothing', 'only settings', 'empty query',
                  'another answer after it']
START_ACTS = ['authentication', 'authentication without end']


def acts_of(step):
    if step in ('startup', 'settings', 'reconnect'):
        return ACTS + START_ACTS
    if step == 'cancel':
        return ['silence', 'garbage', 'notices without end', 'close']
    return ACTS + STATEMENT_ACTS
