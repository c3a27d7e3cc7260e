// The page: a table that is kept up to date by server-sent events, and one lock in detail. Text
// from the store is only ever set as text, never as HTML.

import { address, draw } from "./graph.js";

const FIRST_ROWS = 200, MOST_EVENTS = 200;
const by = (id) => document.getElementById(id);
const locks = new Map();      // the row of each lock, as the server sends it
const rows = new Map();       // the <tr> of each lock that is shown
let events = [];
let info = { backend: "", interval: 1, can_break: false };
let deadlocks = [];
let read = { at: 0, error: null };
let sort = { key: "name", down: false };
let limit = FIRST_ROWS;
let opened = null;            // the name of the lock in detail
let offset = 0;               // of the server's clock to ours, in seconds
let shown = "";               // the names in the table, as one text
let breakToken = sessionStorage.getItem("break-token") ?? "";

// --- texts ----------------------------------------------------------------------------------------

// Characters that are invisible or change the direction of writing are shown as their codes. Other
// programs write texts of any length, and any number of marks above one letter: both are cut.
// Names and labels that this library writes have at most 255 bytes, and are shown in full.
const LONGEST = 255, PERSON = 64, MARKS = /(\p{M}{4})\p{M}+/gu;
const code = (char) => `\\u{${char.codePointAt(0).toString(16)}}`;
function text(raw, most = LONGEST) {
  const all = String(raw);
  // Before the end of a pair of surrogates is no place to cut.
  const part = all.length > most ? `${all.slice(0, most).replace(/[\ud800-\udbff]$/, "")}…` : all;
  return part.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, code).replace(MARKS, "$1…");
}

// As the command line writes them: 850ms, 12.3s, 4m05s, 3h20m, 2d06h.
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.max(0, seconds);
  if (whole < 0.9995) return `${Math.round(whole * 1000)}ms`;
  if (whole < 59.95) return `${whole.toFixed(1)}s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}m${String(Math.floor(whole % 60)).padStart(2, "0")}s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours}h${String(minutes % 60).padStart(2, "0")}m`;
  return `${Math.floor(hours / 24)}d${String(hours % 24).padStart(2, "0")}h`;
}

function age(seconds) {  // without tenths, which would change at each read
  if (seconds === null) return "";
  return seconds < 60 ? `${Math.floor(seconds)}s` : duration(seconds);
}

function person(one) {
  const host = text(one.host, PERSON);
  if (!one.pid) return host;
  return `${host}:${one.pid}${one.thread === "MainThread" ? "" : `/${text(one.thread, PERSON)}`}`;
}

const clock = () => Date.now() / 1000 + offset;
const since = (start) => (start ? Math.max(0, clock() - start) : null);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// A long name with the places where its line may end: behind a separator; within a long word before a
// capital, too. The text is the same, and so is what is copied.
const ENDS = /(?<=[/:.,;#@|=&?])(?![/:.,;#@|=&?]|$)/u, WITHIN = /(?<=_)(?!_|$)|(?<=\p{Ll})(?=\p{Lu})/u, LONG = 24, SHORT = 22;
function breakable(words) {
  if (words.length <= SHORT) return words;
  const whole = document.createDocumentFragment();
  const parts = words.split(ENDS).flatMap((part) => (part.length > LONG ? part.split(WITHIN) : [part]));
  parts.forEach((part, i) => whole.append(...(i ? [element("wbr"), part] : [part])));
  return whole;
}

// A short name is not broken, but begins the next line.
const kept = (words) => (words.length > SHORT ? "" : "whole");
const named = (tag, words, properties = {}) => element(tag, { className: kept(words), ...properties }, breakable(words));

// Setting the same text again would make the browser lay the page out again.
function say(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

// --- the table ------------------------------------------------------------------------------------

const FAR = Number.POSITIVE_INFINITY;
const KEYS = {
  name: (lock) => lock.name,
  holder: (lock) => (lock.holder ? person(lock.holder) : ""),
  since: (lock) => lock.holder?.since ?? FAR,
  ends: (lock) => lock.holder?.ends ?? FAR,
  waiters: (lock) => -lock.waiters,
  wait: (lock) => lock.waiting_since ?? FAR,
};

function chosen() {
  const wanted = by("filter").value.toLowerCase();
  const matches = (lock) => !wanted || [lock.name, lock.holder ? person(lock.holder) : "", lock.holder?.label ?? ""]
    .some((word) => word.toLowerCase().includes(wanted));
  const key = KEYS[sort.key];
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const found = [...locks.values()].filter(matches).map((lock) => [key(lock), lock]);
  found.sort((a, b) => (order(a[0], b[0]) * (sort.down ? -1 : 1)) || order(a[1].name, b[1].name));
  return found.map(([, lock]) => lock);
}

function makeRow() {
  const row = element("tr");
  const link = element("a");
  row.append(element("td", {}, link));
  row.append(element("td"));
  for (const label of ["held", "lease left", "waiting", "longest wait"]) {
    const cell = element("td", { className: "number" });
    cell.dataset.label = label;
    row.append(cell);
  }
  return row;
}

function badges(lock) {
  const found = [];
  const badge = (words, kind = "badge") => found.push(element("span", { className: kind, textContent: words }));
  const hold = lock.holder;
  if (lock.deadlocked) badge("deadlock", "badge alarm");
  if (lock.unreadable) badge("unreadable", "badge alarm");
  if (lock.permits) badge(`${lock.held_permits} of ${lock.permits} permits`);
  else if (hold && hold.mode !== "exclusive") badge(hold.mode);
  if (hold?.detached) badge("detached");
  if (hold?.cooling_down) badge("cooling down");
  return found;
}

function fill(row, lock) {
  const [name, holder] = row.cells;
  const link = name.firstChild;
  link.replaceChildren(breakable(text(lock.name)));
  link.className = kept(lock.name);
  link.href = address(lock.name);
  row.dataset.name = lock.name;
  name.replaceChildren(link, ...badges(lock));
  const others = lock.holders > 1 ? ` and ${lock.holders - 1} more` : "";
  holder.replaceChildren(...(lock.holder ? [named("span", person(lock.holder)), others] : [lock.unreadable ? "unknown" : "free"]));
  if (lock.holder?.label) holder.append(element("span", { className: "label", textContent: text(lock.holder.label) }));
  row.classList.toggle("deadlocked", lock.deadlocked);
  tick(row, lock);
}

// What changes with the time alone.
function tick(row, lock) {
  const [, , held, left, waiting, wait] = row.cells;
  const hold = lock.holder;
  say(held, hold ? (hold.since ? age(since(hold.since)) : "unknown") : "");
  const rest = hold && hold.ends !== null ? hold.ends - clock() : null;
  say(left, rest === null ? (hold ? "–" : "") : age(Math.max(0, rest)));
  left.classList.toggle("late", rest !== null && rest < 2 && !hold.cooling_down);
  say(waiting, lock.waiters ? String(lock.waiters) : "");
  say(wait, lock.waiters && lock.waiting_since ? age(since(lock.waiting_since)) : "");
}

function render(changed = null) {
  const found = chosen();
  const part = found.slice(0, limit);
  for (const lock of part) {
    let row = rows.get(lock.name);
    const fresh = row === undefined;
    if (fresh) rows.set(lock.name, row = makeRow());
    if (fresh || changed === null || changed.has(lock.name)) fill(row, lock);
    row.classList.toggle("changed", changed !== null && changed.has(lock.name));
    row.classList.toggle("open", lock.name === opened);
  }
  const names = JSON.stringify(part.map((lock) => lock.name));
  if (names !== shown) {
    const focused = document.activeElement;
    by("rows").replaceChildren(...part.map((lock) => rows.get(lock.name)));
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    const kept = new Set(part.map((lock) => lock.name));
    for (const name of rows.keys()) if (!kept.has(name)) rows.delete(name);
    shown = names;
  }
  const more = found.length - part.length;
  by("more").hidden = more === 0;
  say(by("more"), `Show ${more} more`);
  say(by("count"), found.length === locks.size ? `${locks.size}` : `${found.length} of ${locks.size}`);
  by("none").hidden = found.length > 0;
  say(by("none"), locks.size ? "No lock matches the filter." : "No lock is held or waited for.");
  totals();
}

function totals() {
  let held = 0, waiting = 0, oldest = null;
  for (const lock of locks.values()) {
    if (lock.holder && !lock.holder.cooling_down) held += 1;
    waiting += lock.waiters;
    if (lock.waiting_since && (oldest === null || lock.waiting_since < oldest)) oldest = lock.waiting_since;
  }
  say(by("held"), String(held));
  say(by("waiting"), String(waiting));
  say(by("longest"), oldest === null ? "–" : age(since(oldest)));
  say(by("stuck"), String(deadlocks.length));
  by("stuck").classList.toggle("bad", deadlocks.length > 0);
  document.title = deadlocks.length ? `(${deadlocks.length} deadlocks) leaselock` : "leaselock";
}

// --- deadlocks and events ---------------------------------------------------------------------------

const lockLink = (name) => named("a", text(name), { href: address(name) });

function showDeadlocks(found) {
  const before = JSON.stringify(deadlocks);
  // On a narrow screen the picture would hide the locks.
  if (found.length && !deadlocks.length && matchMedia("(min-width: 42rem)").matches) by("graph-box").open = true;
  deadlocks = found;
  by("deadlocks").hidden = found.length === 0;
  if (JSON.stringify(found) === before) return;
  by("deadlock-list").replaceChildren(...found.map((deadlock) => element("div", {}, element("ol", {},
    ...deadlock.map((wait) => element("li", {}, named("span", person(wait.waiter)), " waits for ", lockLink(wait.name),
      ", held by ", named("span", person(wait.holder))))),
    ...command("The youngest wait is the first one. To end the deadlock:", deadlock.at(-1).name, deadlock.at(-1).holder.token, "deadlock"))));
}

const VERBS = { granted: "granted", released: "released", expired: "expired", broken: "broken", waiting: "waits", left: "left" };

function eventItem(change, withName) {
  const when = element("time", { textContent: new Date(change.at * 1000).toLocaleTimeString() });
  const rest = element("span", { className: "rest" });
  if (withName) rest.append(lockLink(change.name), " ");
  rest.append(named("span", person(change)));
  if (change.label) rest.append(` (${text(change.label)})`);
  const words = change.kind === "granted" || change.kind === "left" ? "waited" : "held";
  if (change.seconds !== null && change.seconds >= 0.05) rest.append(`, ${words} ${duration(change.seconds)}`);
  if (change.token !== null && !withName) rest.append(`, token ${change.token}`);
  return element("li", {}, when, element("span", { className: `kind ${change.kind}`, textContent: VERBS[change.kind] ?? change.kind }), rest);
}

function addEvents(changes) {
  if (!changes.length) return;
  events = [...changes.toReversed(), ...events].slice(0, MOST_EVENTS);
  const list = by("events");
  list.prepend(...changes.toReversed().map((change) => eventItem(change, true)));
  while (list.childElementCount > MOST_EVENTS) list.lastElementChild.remove();
}

function showEvents(changes) {
  events = [];
  by("events").replaceChildren();
  addEvents(changes);
}

// --- one lock ---------------------------------------------------------------------------------------

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

function command(words, name, token, why) {
  if (token === null) return [];
  const line = `leaselock break ${quoted(name)} --token ${token} --message ${quoted(why)}`;
  // Control characters cannot be copied into a shell safely.
  if (text(name) !== name) return [];
  // A line ends before an option, not within its dashes.
  const options = line.split(/ (?=--)/).flatMap((part, i) => [i ? " " : "", element("span", { className: i ? "option" : "", textContent: part })]);
  const copy = element("button", { textContent: "Copy" });
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(line);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(copy.previousElementSibling);
    }
  });
  return [element("p", { className: "soft", textContent: words }), element("div", { className: "command" }, element("code", {}, ...options), copy)];
}

function facts(pairs) {
  const list = element("dl", { className: "facts" });
  for (const [name, value] of pairs)
    if (value !== null && value !== undefined && value !== "") list.append(element("dt", { textContent: name }), element("dd", { textContent: value }));
  return list;
}

function holdItem(name, hold) {
  const mode = hold.mode === "permits" ? `${hold.permits} permits` : hold.mode;
  const item = element("div", { className: "hold" }, element("strong", {}, breakable(person(hold))),
    facts([
      ["held", hold.since ? `${duration(since(hold.since))}, since ${new Date(hold.since * 1000).toLocaleString()}` : "since unknown"],
      ["lease", hold.remaining === null ? "does not end by time" : `${duration(hold.remaining)} left when it was read`],
      ["token", hold.token], ["mode", mode], ["slot", hold.slots.join(", ")], ["label", hold.label && text(hold.label)],
      ["state", hold.detached ? "detached: no process holds it" : hold.cooling_down ? "cooling down: it is released already" : ""],
      ["version", hold.version && text(hold.version)],
    ]));
  if (hold.token !== null && info.can_break) {
    const button = element("button", { className: "danger", textContent: "Break…" });
    button.addEventListener("click", () => askToBreak(name, hold));
    item.append(button);
  } else {
    item.append(...command("To end this hold by force:", name, hold.token, "why"));
  }
  return item;
}

async function json(path) {
  const reply = await fetch(path);
  return reply.ok ? reply.json() : null;
}

let detailText = "";

async function showDetail() {
  const name = opened;
  if (name === null) return;
  const [found, graph] = await Promise.all(
    [json(`api/lock?name=${encodeURIComponent(name)}`), json(`api/graph?name=${encodeURIComponent(name)}`)]);
  if (name !== opened) return;
  const now = JSON.stringify([found, graph], (key, value) => (key === "at" || key === "remaining" ? undefined : value));
  if (now === detailText && by("detail").contains(document.activeElement) && document.activeElement !== by("detail")) return;
  detailText = now;
  const lock = found?.lock ?? null;
  const permits = lock?.permits ? [element("p", { textContent: `${lock.holders.reduce((sum, hold) => sum + hold.permits, 0)} of ${lock.permits} permits held` })] : [];
  const unreadable = lock?.unreadable ? [element("p", { className: "unreadable", textContent: text(lock.unreadable) })] : [];
  by("holds").replaceChildren(...unreadable, ...permits, ...(lock?.holders ?? []).map((hold) => holdItem(name, hold)));
  if (!lock?.holders.length && !lock?.unreadable) by("holds").append("free");
  by("queue").replaceChildren(...(lock?.waiters ?? []).map((waiter) => {
    const how = waiter.mode === "exclusive" ? "" : waiter.mode === "permits" ? `, ${waiter.permits} permits` : `, ${waiter.mode}`;
    return element("li", {}, named("span", person(waiter)), `${waiter.label ? ` (${text(waiter.label)})` : ""}${how}, for ${duration(since(waiter.since))}`);
  }));
  const more = (lock?.waiter_count ?? 0) - (lock?.waiters.length ?? 0);
  say(by("queue-more"), more > 0 ? `and ${more} more` : lock?.waiters.length ? "" : "empty");
  if (graph) draw(by("detail-graph"), graph, { text, person });
  by("detail-events").replaceChildren(...(found?.changes ?? []).toReversed().map((change) => eventItem(change, false)));
}

let opener = null;

function route() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has("token")) {
    breakToken = given.get("token");
    sessionStorage.setItem("break-token", breakToken);
    history.replaceState(null, "", location.pathname);
  }
  const name = given.get("lock");
  if (name === opened) return;
  const before = opened;
  opened = name;
  detailText = "";
  by("detail").hidden = name === null;
  for (const [each, row] of rows) row.classList.toggle("open", each === name);
  if (name === null) {
    (rows.get(before)?.querySelector("a") ?? opener)?.focus({ preventScroll: true });
    return;
  }
  opener = document.activeElement;
  by("detail-title").replaceChildren(breakable(text(name)));
  for (const id of ["holds", "queue", "detail-graph", "detail-events"]) by(id).replaceChildren();
  by("detail").focus();
  showDetail();
}

function close() {
  if (opened !== null) location.hash = "";
}

// --- breaking ---------------------------------------------------------------------------------------

let target = null;

function askToBreak(name, hold) {
  target = { name, token: hold.token };
  by("break-what").textContent = `${text(name)}, held by ${person(hold)}, token ${hold.token}`;
  by("break-name").value = by("break-message").value = by("break-error").textContent = "";
  by("break-token").value = breakToken;
  by("break-token-label").hidden = breakToken !== "";
  by("breaking").showModal();
  by("break-name").focus();
}

async function breakIt(submitted) {
  submitted.preventDefault();
  const problem = by("break-error");
  if (by("break-name").value !== target.name) {
    problem.textContent = "That is not the name of the lock.";
    return;
  }
  const given = by("break-token").value.trim();
  const reply = await fetch("api/break", {
    method: "POST",
    headers: { "Authorization": `Bearer ${given}`, "Content-Type": "application/json" },
    body: JSON.stringify({ ...target, message: by("break-message").value }),
  });
  if (reply.ok) {
    breakToken = given;
    sessionStorage.setItem("break-token", given);
    by("breaking").close();
    showDetail();
    return;
  }
  if (reply.status === 401) {
    breakToken = "";
    sessionStorage.removeItem("break-token");
    by("break-token-label").hidden = false;
  }
  problem.textContent = (await reply.json()).message;
}

// --- the stream -------------------------------------------------------------------------------------

function status(words, kind) {
  say(by("status"), words);
  by("status").className = kind;
}

function head(data) {
  read = data;
  by("error").hidden = data.error === null;
  if (data.error === null) {
    const measured = data.at - Date.now() / 1000;
    if (Math.abs(measured - offset) > 0.5) offset = measured;
    status("live", "live");
    say(by("took"), duration(data.took));
    say(by("losses"), String(data.losses));
    by("losses").classList.toggle("bad", data.losses > 0);
    say(by("rate"), data.grants_per_second.toFixed(1));
  } else {
    const last = data.at ? `This is the state of ${new Date(data.at * 1000).toLocaleTimeString()}.` : "";
    say(by("error"), `The store does not answer: ${text(data.error).replace(/\.$/, "")}. ${last}`);
    status("store does not answer", "stale");
  }
  showDeadlocks(data.deadlocks);
}

async function showGraph() {
  if (!by("graph-box").open) return;
  const graph = await json("api/graph");
  if (graph) draw(by("graph"), graph, { text, person });
}

function onState(message) {
  const data = JSON.parse(message.data);
  locks.clear();
  for (const lock of data.locks) locks.set(lock.name, lock);
  head(data);
  showEvents(data.changes);
  render();
  showGraph();
  showDetail();
}

function onChange(message) {
  const data = JSON.parse(message.data);
  for (const name of data.gone) locks.delete(name);
  for (const lock of data.locks) locks.set(lock.name, lock);
  head(data);
  addEvents(data.changes);
  render(new Set(data.locks.map((lock) => lock.name)));
  if (data.locks.length || data.gone.length || data.changes.length) {
    showGraph();
    if (data.gone.includes(opened) || data.locks.some((lock) => lock.name === opened)) showDetail();
  }
}

function connect() {
  const stream = new EventSource("api/events");
  stream.addEventListener("state", onState);
  stream.addEventListener("change", onChange);
  stream.addEventListener("error", () => {
    status("disconnected", "stale");
    // The browser connects again by itself after a lost connection, but not after an error reply.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  });
}

// --- the keyboard -----------------------------------------------------------------------------------

function move(step) {
  const links = [...by("rows").querySelectorAll("td:first-child a")];
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step];
  next?.focus();
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || by("breaking").open) return;
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "Escape") {
    if (typing && event.target.value) { event.target.value = ""; render(); } else if (opened !== null) close();
    else if (typing) event.target.blur();
  } else if (event.key === "/" && !typing) {
    event.preventDefault();
    by("filter").focus();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    if (by("detail").contains(event.target)) return;
    const inTable = event.target === by("filter") || event.target === document.body || by("table").contains(event.target);
    if (!inTable) return;
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  }
}

function sortBy(key) {
  sort = { key, down: sort.key === key && !sort.down };
  for (const head of document.querySelectorAll("th")) {
    const own = head.firstElementChild.dataset.sort === key;
    if (own) head.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  render();
}

async function start() {
  info = await json("api/info");
  by("store").textContent = text(info.backend);
  by("version").textContent = `version ${info.version}`;
  route();
  connect();
}

// A click anywhere in a row opens it, unless it ends the selection of a text or is on a link.
function onRowClick(event) {
  const row = event.target.closest("tr");
  if (row && !event.target.closest("a") && getSelection().isCollapsed) location.hash = address(row.dataset.name);
}

addEventListener("hashchange", route);
by("rows").addEventListener("click", onRowClick);
document.addEventListener("keydown", onKey);
by("filter").addEventListener("input", () => { limit = FIRST_ROWS; render(); });
by("more").addEventListener("click", () => { limit = FAR; render(); });
by("graph-box").addEventListener("toggle", showGraph);
by("close").addEventListener("click", close);
by("break-form").addEventListener("submit", breakIt);
by("break-cancel").addEventListener("click", () => by("breaking").close());
for (const button of document.querySelectorAll("th button"))
  button.addEventListener("click", () => sortBy(button.dataset.sort));
setInterval(() => {
  for (const [name, row] of rows) if (locks.has(name)) tick(row, locks.get(name));
  totals();
}, 1000);
start();
