# A replica of a service that does a job if no other replica does; ruby-pg.
#
#   replica.rb once LOCK           tries once
#   replica.rb keep LOCK           works until the lock is lost
#   replica.rb race LOCK ROUNDS    tries until it has worked ROUNDS times
#
# libpq's environment variables say where the server is.
require "pg"

class Lost < StandardError; end

DB = PG.connect
DB.type_map_for_results = PG::BasicTypeMapForResults.new(DB)
$stdout.sync = true

def row(query, *values)
  DB.exec_params(query, values).values.first
end

# Yields the token and a function that extends the lock, if no other replica holds it;
# returns whether it did.
def run_once(lock)
  token, = row("SELECT shedlock_acquire_token($1, '1 min')", lock)
  return false if token.nil?

  keep_alive = lambda do
    alive, = row("SELECT shedlock_extend($1, $2, '1 min')", lock, token)
    raise Lost, lock unless alive
  end
  begin
    yield token, keep_alive
  ensure
    row("SELECT shedlock_release($1, $2)", lock, token)
  end
  true
end

def once(lock)
  puts run_once(lock) { |_, keep_alive| keep_alive.call } ? "ran" : "refused"
end

def keep(lock)
  run_once(lock) do |_, keep_alive|
    puts "holding"
    loop do
      sleep 0.05
      keep_alive.call
    end
  end
  puts "refused"
rescue Lost
  puts "lost"
end

def race(lock, rounds)
  won = refused = 0
  while won < rounds
    # Loses an update if another replica runs it meanwhile: two statements, on purpose.
    ran = run_once(lock) do |token, keep_alive|
      value, started = row("SELECT value, clock_timestamp()::text FROM race_counter")
      sleep rand(0.002..0.005)
      keep_alive.call if (won % 8).zero?
      row("UPDATE race_counter SET value = $1", value + 1)
      row("INSERT INTO race_log (token, started) VALUES ($1, $2)", token, started)
    end
    ran ? won += 1 : refused += 1
    sleep rand(0.004..0.02)
  end
  puts "#{won} won, #{refused} refused"
end

command, name, rounds = ARGV
case command
when "once" then once(name)
when "keep" then keep(name)
when "race" then race(name, Integer(rounds))
end
