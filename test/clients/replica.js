// A replica of a service that does a job if no other replica does; node-postgres.
//
//   replica.js once LOCK           tries once
//   replica.js keep LOCK           works until the lock is lost
//   replica.js race LOCK ROUNDS    tries until it has worked ROUNDS times
//
// libpq's environment variables say where the server is.
const { Pool } = require("pg");

// Several connections: each query may run in another session.
const pool = new Pool({ max: 3 });

const row = async (text, values) => (await pool.query(text, values)).rows[0];
const sleep = (low, high) => new Promise((resolve) => setTimeout(resolve, low + Math.random() * (high - low)));

class Lost extends Error {}

// Runs work(token, keepAlive) if no other replica does; resolves to whether it ran.
async function runOnce(lock, work) {
  const { token } = await row("SELECT shedlock_acquire_token($1, '1 min') AS token", [lock]);
  if (token === null) return false;
  const keepAlive = async () => {
    const { alive } = await row("SELECT shedlock_extend($1, $2, '1 min') AS alive", [lock, token]);
    if (!alive) throw new Lost(lock);
  };
  try {
    await work(token, keepAlive);
  } finally {
    await row("SELECT shedlock_release($1, $2)", [lock, token]);
  }
  return true;
}

async function once(lock) {
  const ran = await runOnce(lock, (token, keepAlive) => keepAlive());
  console.log(ran ? "ran" : "refused");
}

async function keep(lock) {
  try {
    await runOnce(lock, async (token, keepAlive) => {
      console.log("holding");
      for (;;) {
        await sleep(50, 50);
        await keepAlive();
      }
    });
    console.log("refused");
  } catch (e) {
    if (!(e instanceof Lost)) throw e;
    console.log("lost");
  }
}

async function race(lock, rounds) {
  let won = 0;
  let refused = 0;
  // Loses an update if another replica runs it meanwhile: two statements, on purpose.
  const work = async (token, keepAlive) => {
    const { value, started } = await row("SELECT value, clock_timestamp()::text AS started FROM race_counter");
    await sleep(2, 5);
    if (won % 8 === 0) await keepAlive();
    await row("UPDATE race_counter SET value = $1", [Number(value) + 1]);
    await row("INSERT INTO race_log (token, started) VALUES ($1, $2)", [token, started]);
  };
  while (won < rounds) {
    if (await runOnce(lock, work)) won++;
    else refused++;
    await sleep(4, 20);
  }
  console.log(`${won} won, ${refused} refused`);
}

const [command, name, rounds] = process.argv.slice(2);
({ once, keep, race })[command](name, Number(rounds)).then(() => pool.end()).catch((e) => {
  console.error(e);
  process.exit(1);
});
