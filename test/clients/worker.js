// A service that works as test/perl/ClientSuite.pm tells it to, with the package of clients/node.
"use strict";
const path = require("path");
const { setTimeout: sleep } = require("timers/promises");
const shedlock = require(path.resolve("clients/node"));

const options = {};
const jobs = [];
for (const argument of process.argv.slice(2)) {
  const [, key, value] = /^([^=]*)=(.*)$/.exec(argument);
  const name = key.replace(/_[a-z]/g, (c) => c[1].toUpperCase());
  if (key === "job") jobs.push({ name: value });
  else (jobs.at(-1) ?? options)[name] = value;
}
const time = () => (Date.now() / 1000).toFixed(6);
const say = (...words) => process.stdout.write(`${[time(), ...words].join(" ")}\n`);
const text = (error) => `${error.message} ${error.cause?.message ?? ""}`.split(/\s+/).join(" ");

function handler(work) {
  const [kind, length] = work.split(":");
  return async (run) => {
    if (kind === "block") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, length * 1000);
    const end = performance.now() + length * 1000;
    try {
      while (kind !== "blind" && performance.now() < end) {
        const at = time();
        run.check();
        say("step", run.name, run.token, at);
        await sleep(100);
      }
      // a timer that keeps no process, as an event that never comes keeps none
      while (kind === "blind" && performance.now() < end) await sleep(100, null, { ref: false });
      run.check();
    } catch (sign) {
      say("signed", run.name, run.token, sign.name);
      throw sign;
    } finally {
      say("done", run.name, run.token);
    }
    if (kind === "fail" && run.attempt === 1) throw new RangeError("of the work");
  };
}

function onEvent(event, run) {
  const words = { begun: [run.attempt, run.tick.toISOString()], ended: [run.outcome] }[event] ?? [];
  say(event, run.name, run.token, ...words);
}

async function start() {
  const { lock, seconds, declare, lease, ...numbers } = options;
  if (lock) {
    const work = async (held) => {
      say("begun", lock);
      for (const end = performance.now() + seconds * 1000; performance.now() < end; await sleep(100)) {
        held.check();
        say("step", lock, held.token, time());
      }
      return held.token;
    };
    say("released", lock, await shedlock.lock({}, lock, work, { atMost: Number(lease), wait: Number(numbers.wait ?? 0) }));
    return;
  }
  for (const [key, value] of Object.entries({ lease, ...numbers })) {
    if (value !== undefined) options[key] = Number(value);
  }
  const worker = new shedlock.Worker({}, jobs.map(({ work, ...job }) => ({ ...job, handler: handler(work) })), {
    ...options, declare: declare !== "no", onEvent,
    onError: (error, run) => say("error", run?.name ?? "-", text(error)),
  });
  await worker.run();
}

start().catch((error) => {
  if (error instanceof shedlock.LockHeld) return say("refused", options.lock);
  if (error instanceof shedlock.LockLost) return say("lost", options.lock);
  say("failed", text(error));
  process.exitCode = 1;
}).finally(() => say("over"));
