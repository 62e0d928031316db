// Tests the claims about runOnce() in doc/services.md; see test/t/tree-documents.pl.
const path = require("path");
const { Pool } = require("pg");
const { runOnce } = require(path.join(process.env.README_CODE, "readme.js"));

const app = new Pool({ user: "app", max: 4 });
const admin = new Pool({ max: 1 });

const claim = (text, kept) => console.log(`${text}: ${kept ? "yes" : "no"}`);
const ask = async (query) => Object.values((await admin.query(query)).rows[0])[0];

async function race() {
  // The caller that runs works until the other one has returned.
  let ran = 0;
  let refused;
  const other = new Promise((resolve) => { refused = resolve; });
  const work = async () => { ran++; await other; };
  const call = async () => {
    const answer = await runOnce(app, "node", work);
    refused();
    return answer;
  };
  const answers = await Promise.all([call(), call()]);
  claim("two callers at once: one runs", ran === 1);
  claim("the refused caller is told so", answers.includes(true) && answers.includes(false));
  claim("lock_at_least_for keeps the lock after the work",
    (await runOnce(app, "node", work)) === false && ran === 1);
}

async function lose() {
  const until = "SELECT lock_until FROM shedlock WHERE name = 'node-alive'";
  try {
    await runOnce(app, "node-alive", async (keepAlive) => {
      const before = await ask(until);
      await keepAlive();
      claim("keeping alive extends the lock", (await ask(until)) > before);
      await ask("SELECT shedlock_force_release('node-alive')");
      await keepAlive();
    });
    claim("keeping alive fails once the lock is lost", false);
  } catch (e) {
    claim("keeping alive fails once the lock is lost", e.message === "lock node-alive was lost");
  }
}

async function lateLoss() {
  const kept = "work that does not notice the loss is no success";
  try {
    await runOnce(app, "node-blind", () => ask("SELECT shedlock_force_release('node-blind')"));
    claim(kept, false);
  } catch (e) {
    claim(kept, e.message === "lock node-blind was lost");
  }
}

async function fail() {
  try {
    await runOnce(app, "node-fails", async () => { throw new Error("of the work"); });
  } catch (e) {
    claim("an error of the work reaches the caller", e.message === "of the work");
  }
  claim("an error of the work releases the lock",
    await ask("SELECT kind IS NULL FROM shedlock WHERE name = 'node-fails'"));
}

race().then(lose).then(lateLoss).then(fail).then(() => Promise.all([app.end(), admin.end()])).catch((e) => {
  console.error(e);
  process.exit(1);
});
