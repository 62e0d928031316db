// A replica of a service that calls runJob() of doc/services.md; see test/perl/JobRecipes.pm.
const path = require("path");
const { Client, Pool } = require("pg");
const { setTimeout: sleep } = require("timers/promises");
const { runJob } = require(path.join(process.env.RECIPES, "recipe.js"));

const [job, lease, replica] = process.argv.slice(2);
const pool = new Pool({ max: 2 });
pool.on("error", () => {});
const seen = new Client({ host: process.env.WORK_HOST, port: process.env.WORK_PORT, user: "worker" });
const ask = async (sql, ...args) => Object.values((await seen.query(sql, args)).rows[0])[0];

async function work(tick, token, signal) {
  for (;;) {
    const at = Date.now() / 1000;
    if (!job.startsWith("blind")) signal.throwIfAborted();
    const order = await ask("SELECT work_step($1, $2, $3, $4)", job, replica, token, at);
    if (order === "raise") throw new RangeError("of the work");
    if (order === "done") return;
    await sleep(100);
  }
}

async function call() {
  try {
    return await runJob(pool, { name: job, lease: Number(lease) }, work) ? "ran" : "not due";
  } catch (e) {
    if (e.message === `lock ${job} was lost`) return "lost";
    return (e instanceof RangeError ? "raised: " : "error: ") + e.message;
  }
}

async function main() {
  await seen.connect();
  while (await ask("SELECT work_told($1, $2, $3)", job, replica, await call())) await sleep(200);
  process.exit(0);
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
