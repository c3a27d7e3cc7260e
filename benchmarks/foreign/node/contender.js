// A process in Node: arguments NAME FOLDER, then commands on its standard input, each answered by
// one line of JSON, as in benchmarks/workers/contender.py.
//
// node-redlock: a lease of 30 s without renewal, and a wait without limit, with the documented
// pauses (200 ms and up to 200 ms more). Times are of process.hrtime, which on Linux is the clock
// of Python's time.monotonic_ns().
"use strict";
const fs = require("fs");
const path = require("path");
const readline = require("readline");
const built = process.env.LEASELOCK_BUILT;
const Redis = require(path.join(built, "node_modules", "ioredis"));
const { default: Redlock } = require(path.join(built, "node_modules", "redlock"));

const [name, folder] = process.argv.slice(2);
const LEASE = 30000;
const WARM_UP = 300000000n;
const now = () => process.hrtime.bigint();
const cpu = () => { const used = process.cpuUsage(); return used.user + used.system; };
const report = (value) => process.stdout.write(JSON.stringify(value) + "\n");

const urls = fs.readFileSync(path.join(folder, "url"), "utf-8").trim().split(",");
const clients = urls.map((url) => new Redis(url));
clients.forEach((client) => client.on("error", () => {}));
const redlock = new Redlock(clients, { retryCount: -1, retryDelay: 200, retryJitter: 200 });
redlock.on("error", () => {});  // emitted at each try while a server is down
const counter = fs.openSync(path.join(folder, "counter"), fs.constants.O_RDWR | fs.constants.O_CREAT, 0o600);
let held;

// Increment the counter non-atomically: concurrent holders would lose updates.
function countUp() {
  const number = Buffer.alloc(8);
  fs.readSync(counter, number, 0, 8, 0);
  number.writeBigUInt64LE(number.readBigUInt64LE() + 1n);
  fs.writeSync(counter, number, 0, 8, 0);
}

async function pairs(count) {
  const began = now(), used = cpu();
  for (let i = 0; i < count; i++) await (await redlock.acquire([name], LEASE)).release();
  report({ wall: Number(now() - began) / 1e9 / count, cpu: (cpu() - used) / 1e6 / count });
}

async function contend(hold, seconds) {
  const holds = [], used = cpu(), until = now() + BigInt(Math.round(seconds * 1e9));
  for (let requested = now(); requested < until; requested = now()) {
    const lock = await redlock.acquire([name], LEASE);
    const granted = now();
    countUp();
    if (hold) await new Promise((resolve) => setTimeout(resolve, hold * 1e3));
    const released = now();
    await lock.release();
    holds.push([requested, granted, released].map(Number));
  }
  report({ holds, cpu: (cpu() - used) / 1e6 });
}

// Acquire and release that often, for verification/interop: the file appears before the first acquire, and
// gets a line "granted released 0" for each hold.
async function turns(count, hold, file) {
  let holds = "";
  fs.writeFileSync(file, holds);
  for (let i = 0; i < count; i++) {
    const lock = await redlock.acquire([name], LEASE);
    const granted = now();
    await new Promise((resolve) => setTimeout(resolve, hold * 1e3));
    const released = now();
    await lock.release();
    holds += `${granted} ${released} 0\n`;
  }
  fs.writeFileSync(file, holds);
  report(true);
}

async function count(workers, seconds) {
  const until = now() + BigInt(Math.round(seconds * 1e9));
  const work = async (i) => {
    let done = 0;
    for (; now() < until; done++) await (await redlock.acquire([`each ${i}`], LEASE)).release();
    return done;
  };
  const counts = await Promise.all([...Array(workers).keys()].map(work));
  return counts.reduce((a, b) => a + b, 0);
}

async function each(workers, seconds) {
  await count(workers, seconds / 2);
  const began = now(), used = cpu();
  const done = await count(workers, seconds);
  report({ rate: done / (Number(now() - began) / 1e9), cpu: (cpu() - used) / 1e6 / done });
}

async function obey([verb, ...words]) {
  const numbers = words.map(Number);
  if (verb === "acquire") { held = await redlock.acquire([name], LEASE); report(true); }
  else if (verb === "release") { await held.release(); report(true); }
  else if (verb === "pairs") await pairs(...numbers);
  else if (verb === "contend") await contend(...numbers);
  else if (verb === "turns") await turns(numbers[0], numbers[1], words[2]);
  else if (verb === "each") await each(...numbers);
  else throw new Error(verb);
}

async function main() {
  const until = now() + WARM_UP;
  for (let i = 0; i < 300 && now() < until; i++) await (await redlock.acquire([`${name} ${process.pid}`], LEASE)).release();
  report(true);
  for await (const line of readline.createInterface({ input: process.stdin })) await obey(line.split(" "));
  process.exit(0);
}

main().catch((error) => { console.error(error); process.exit(1); });
