<?php
// A replica of a service that does a job if no other replica does; PDO.
//
//   replica.php once LOCK           tries once
//   replica.php keep LOCK           works until the lock is lost
//   replica.php race LOCK ROUNDS    tries until it has worked ROUNDS times
//
// libpq's environment variables say where the server is.
declare(strict_types=1);

class Lost extends Exception
{
}

$db = new PDO('pgsql:', null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);

function row(string $query, mixed ...$values): array
{
    global $db;
    $statement = $db->prepare($query);
    $statement->execute($values);
    return $statement->fetch(PDO::FETCH_NUM) ?: [];
}

// Runs $work($token, $keepAlive) if no other replica does; returns whether it ran.
function runOnce(string $lock, callable $work): bool
{
    [$token] = row("SELECT shedlock_acquire_token(?, '1 min')", $lock);
    if ($token === null) {
        return false;
    }
    $keepAlive = function () use ($lock, $token): void {
        [$alive] = row("SELECT shedlock_extend(?, ?, '1 min')", $lock, $token);
        if (!$alive) {
            throw new Lost($lock);
        }
    };
    try {
        $work($token, $keepAlive);
    } finally {
        row("SELECT shedlock_release(?, ?)", $lock, $token);
    }
    return true;
}

function once(string $lock): string
{
    return runOnce($lock, fn ($token, $keepAlive) => $keepAlive()) ? 'ran' : 'refused';
}

function keep(string $lock): string
{
    try {
        runOnce($lock, function (int $token, callable $keepAlive): void {
            echo "holding\n";
            for (;;) {
                usleep(50000);
                $keepAlive();
            }
        });
        return 'refused';
    } catch (Lost) {
        return 'lost';
    }
}

function race(string $lock, int $rounds): string
{
    $won = $refused = 0;
    // Loses an update if another replica runs it meanwhile: two statements, on purpose.
    $work = function (int $token, callable $keepAlive) use (&$won): void {
        [$value, $started] = row("SELECT value, clock_timestamp()::text FROM race_counter");
        usleep(random_int(2000, 5000));
        if ($won % 8 === 0) {
            $keepAlive();
        }
        row("UPDATE race_counter SET value = ?", $value + 1);
        row("INSERT INTO race_log (token, started) VALUES (?, ?)", $token, $started);
    };
    while ($won < $rounds) {
        runOnce($lock, $work) ? $won++ : $refused++;
        usleep(random_int(4000, 20000));
    }
    return "$won won, $refused refused";
}

[, $command, $name] = $argv;
echo match ($command) {
    'once' => once($name),
    'keep' => keep($name),
    'race' => race($name, (int) $argv[3]),
}, "\n";
