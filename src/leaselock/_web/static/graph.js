// Draws a waits-for graph as SVG: owners that wait on the left, those that they wait for on the
// right, a deadlock as a circle. Without a library; the size is bounded by the server.

const HEIGHT = 42, ROW = HEIGHT + 18, MARGIN = 12;
// The width of a letter of a lock's name, at most on average.
const LETTER = 8;
// Narrower beside the table than across the page.
let WIDTH = 190, COLUMN = 340, LETTERS = 25, ACROSS = 130;
// A picture that is wider than its place is made smaller, as long as it can be read.
const SMALLEST = 0.65;
const NAMESPACE = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The beginning and the end of a long text: names that begin alike differ at the end.
function cut(text, most) {
  const letters = [...text];
  const first = Math.floor((most - 1) / 2);
  return letters.length > most ? `${letters.slice(0, first).join("")}…${letters.slice(first + 1 - most).join("")}` : text;
}

// The owners that are connected by waits, in the order of the server.
function components(owners, waits) {
  const next = new Map(owners.map((owner) => [owner.id, []]));
  for (const wait of waits) {
    next.get(wait.waiter).push(wait.holder);
    next.get(wait.holder).push(wait.waiter);
  }
  const place = new Map(owners.map((owner, index) => [owner.id, index]));
  const seen = new Set();
  const found = [];
  for (const owner of owners) {
    if (seen.has(owner.id)) continue;
    const part = [];
    const left = [owner.id];
    seen.add(owner.id);
    while (left.length) {
      const id = left.pop();
      part.push(id);
      for (const other of next.get(id)) if (!seen.has(other)) { seen.add(other); left.push(other); }
    }
    found.push(part.sort((a, b) => place.get(a) - place.get(b)));
  }
  return found;
}

// In which column each owner is: 0 for those that wait for none and those of a deadlock.
function levels(part, waits, core) {
  const level = new Map(part.map((id) => [id, 0]));
  for (let round = 0; round < part.length; round++) {
    let changed = false;
    for (const wait of waits) {
      const wanted = level.get(wait.holder) + 1;
      if (core.has(wait.waiter) || level.get(wait.waiter) >= wanted || wanted > part.length) continue;
      level.set(wait.waiter, wanted);
      changed = true;
    }
    if (!changed) break;
  }
  return level;
}

// Places the centres of one component from *top* on; returns where it ends.
function place(part, waits, stuck, top, centres) {
  const own = waits.filter((wait) => part.includes(wait.waiter));
  const core = new Set(part.filter((id) => stuck.has(id)));
  const level = levels(part, own, core);
  const deepest = Math.max(...level.values());
  const columns = Array.from({ length: deepest + 1 }, () => []);
  for (const id of part) columns[level.get(id)].push(id);
  // A circle of two is upright. A larger one has at its left an owner for which others wait, so that
  // their lines cross no box.
  const circle = columns[0].filter((id) => core.has(id));
  const rest = columns[0].filter((id) => !core.has(id));
  const radiusX = circle.length > 2 ? (WIDTH + ACROSS) / 1.5 : 0;
  const radiusY = circle.length > 1 ? Math.max(62, circle.length * 26) : 0;
  const circleHeight = circle.length ? 2 * radiusY + HEIGHT : 0;
  const height = Math.max(
    circleHeight + rest.length * ROW, ...columns.slice(1).map((column) => column.length * ROW), HEIGHT);
  const x0 = deepest * COLUMN + WIDTH / 2 + MARGIN + radiusX;
  const following = (id) => own.filter((wait) => wait.waiter === id).map((wait) => wait.holder);
  const ordered = [];
  const awaited = own.find((wait) => core.has(wait.holder) && !core.has(wait.waiter))?.holder;
  for (let id = awaited ?? circle[0]; id !== undefined && !ordered.includes(id);) {
    ordered.push(id);
    id = following(id).find((other) => core.has(other));
  }
  ordered.push(...circle.filter((id) => !ordered.includes(id)));
  const middle = top + (height - rest.length * ROW) / 2;
  ordered.forEach((id, index) => {
    const angle = (2 * Math.PI * index) / ordered.length - (ordered.length > 2 ? Math.PI : Math.PI / 2);
    centres.set(id, { x: x0 + radiusX * Math.cos(angle), y: middle + radiusY * Math.sin(angle) });
  });
  const firstRow = circle.length ? top + circleHeight + ROW / 2 : top + (height - rest.length * ROW) / 2 + ROW / 2;
  rest.forEach((id, index) => centres.set(id, { x: x0, y: firstRow + index * ROW }));
  for (let depth = 1; depth <= deepest; depth++) {
    const aim = (id) => {
      const targets = following(id).map((other) => centres.get(other)?.y ?? 0);
      return targets.reduce((sum, y) => sum + y, 0) / (targets.length || 1);
    };
    const column = columns[depth].map((id) => [aim(id), id]).sort((a, b) => a[0] - b[0]);
    const wanted = column.reduce((sum, [y]) => sum + y, 0) / column.length - ((column.length - 1) * ROW) / 2;
    const start = Math.min(Math.max(wanted, top + HEIGHT / 2), top + height - HEIGHT / 2 - (column.length - 1) * ROW);
    column.forEach(([, id], index) =>
      centres.set(id, { x: (deepest - depth) * COLUMN + WIDTH / 2 + MARGIN, y: start + index * ROW }));
  }
  return top + height;
}

// The centres of all owners, with the components side by side in as many columns as the width has
// room for, each as far up as there is room, a wide one across several columns; and the size of the
// picture.
function arrange(parts, waits, stuck, width, margin) {
  const gap = margin + 2 * MARGIN;
  const placed = parts.map((part) => {
    const centres = new Map();
    const height = place(part, waits, stuck, 0, centres);
    return { centres, height, width: Math.max(...[...centres.values()].map((centre) => centre.x)) + WIDTH / 2 };
  });
  const least = Math.min(...placed.map((part) => part.width)) + gap;
  for (const part of placed) part.span = Math.ceil((part.width + gap) / least);
  const room = Math.floor((width + 2 * MARGIN) / least);
  const count = Math.max(...placed.map((part) => part.span), Math.min(room, placed.reduce((sum, part) => sum + part.span, 0)));
  // In a wide window the columns are further apart.
  const column = count === room ? (width + 2 * MARGIN) / count : least;
  const bottoms = new Array(count).fill(MARGIN);
  const all = new Map();
  let right = 0;
  for (const part of placed) {
    const tops = Array.from({ length: count - part.span + 1 }, (_, i) => Math.max(...bottoms.slice(i, i + part.span)));
    const top = Math.min(...tops), index = tops.indexOf(top);
    for (const [id, { x, y }] of part.centres) all.set(id, { x: x + index * column, y: y + top });
    right = Math.max(right, index * column + part.width + margin);
    bottoms.fill(top + part.height + 26, index, index + part.span);
  }
  return [all, right, Math.max(...bottoms)];
}

// The point where the line from the centre of a box to another point leaves the box.
function border(centre, towards) {
  const dx = towards.x - centre.x, dy = towards.y - centre.y;
  const scale = 1 / Math.max(Math.abs(dx) / (WIDTH / 2 + 3), Math.abs(dy) / (HEIGHT / 2 + 3), 1e-6);
  return { x: centre.x + dx * Math.min(1, scale), y: centre.y + dy * Math.min(1, scale) };
}

function edge(wait, centres, text, both, id) {
  const from = centres.get(wait.waiter), to = centres.get(wait.holder);
  // Two owners that wait for each other have two bows, not one line.
  const bow = both ? 46 : 0;
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  let bend = {
    x: (from.x + to.x) / 2 - ((to.y - from.y) / length) * bow * 1.6,
    y: (from.y + to.y) / 2 + ((to.x - from.x) / length) * bow * 1.6,
  };
  let start = border(from, bend), end = border(to, bend);
  if (!wait.deadlocked && !both && Math.abs(to.x - from.x) > WIDTH) {
    // From side to side, so that it crosses no box above or below.
    const side = Math.sign(to.x - from.x) * (WIDTH / 2 + 3);
    start = { x: from.x + side, y: from.y };
    end = { x: to.x - side, y: to.y + Math.max(-14, Math.min(14, (from.y - to.y) / 10)) };
    bend = { x: (start.x + end.x) / 2, y: (start.y + end.y) / 2 };
  }
  const kind = wait.deadlocked ? "edge deadlocked" : "edge";
  // Nearer to the waiter, where lines to one holder are apart.
  const part = wait.deadlocked ? 0.5 : 0.4;
  const on = (axis) => (1 - part) ** 2 * start[axis] + 2 * part * (1 - part) * bend[axis] + part ** 2 * end[axis];
  const middle = { x: on("x"), y: on("y") };
  const words = cut(text(wait.name), Math.min(22, Math.max(10, Math.floor((0.88 * (COLUMN - WIDTH)) / LETTER))));
  const label = make("text", { x: middle.x, y: middle.y + 4, "text-anchor": "middle" }, words);
  label.append(make("title", {}, text(wait.name)));
  return [
    make("path", {
      class: kind, d: `M${start.x},${start.y} Q${bend.x},${bend.y} ${end.x},${end.y}`,
      "marker-end": `url(#${id}-${wait.deadlocked ? "bad" : "arrow"})`,
    }),
    make("a", { href: address(wait.name) }, label),
    middle.x, words.length * LETTER / 2,
  ];
}

function arrow(id, kind) {
  const head = make("path", { d: "M0,0 L9,4.5 L0,9 z" });
  return make("marker", { id, class: kind, markerWidth: 9, markerHeight: 9, refX: 8, refY: 4.5, orient: "auto", markerUnits: "userSpaceOnUse" }, head);
}

// A link to the detail of a lock. encodeURIComponent refuses halves of characters.
export const address = (name) => `#lock=${encodeURIComponent(name.toWellFormed?.() ?? name)}`;

// Replace the content of *container* with a picture of *data*, as /api/graph sends it. *text* makes
// a text visible, *person* names an owner.
export function draw(container, data, { text, person }) {
  [WIDTH, COLUMN, LETTERS, ACROSS] = container.clientWidth < 380 ? [110, 196, 14, 90] : container.clientWidth < 520 ? [136, 222, 17, 90] : [190, 350, 25, 130];
  const notes = [];
  const note = (words) => notes.push(Object.assign(document.createElement("p"), { textContent: words }));
  if (data.left_out) note(`${data.left_out} more waits are not drawn.`);
  if (!data.waits.length) {
    note("No owner waits for another one.");
    container.replaceChildren(...notes);
    return;
  }
  const stuck = new Set(data.owners.filter((owner) => owner.deadlocked).map((owner) => owner.id));
  const pairs = new Set(data.waits.map((wait) => `${wait.waiter} ${wait.holder}`));
  const bows = data.waits.some((wait) => pairs.has(`${wait.holder} ${wait.waiter}`));
  const [centres, right, bottom] = arrange(components(data.owners, data.waits), data.waits, stuck, container.clientWidth, bows ? 60 : MARGIN);
  const count = `${data.owners.length} owners, ${data.waits.length} waits, ${stuck.size} owners in a deadlock`;
  const id = `${container.id}-head`;
  const svg = make("svg", { role: "group", "aria-label": `Waits-for graph: ${count}` },
    make("defs", {}, arrow(`${id}-arrow`, ""), arrow(`${id}-bad`, "deadlocked")));
  const labels = [];
  // A name beside a bow may be longer than the boxes are wide.
  let first = 0, last = right;
  for (const wait of data.waits) {
    const [line, label, x, half] = edge(wait, centres, text, pairs.has(`${wait.holder} ${wait.waiter}`), id);
    svg.append(line);
    labels.push(label);
    first = Math.min(first, x - half);
    last = Math.max(last, x + half);
  }
  const scale = Math.max(SMALLEST, Math.min(1, container.clientWidth / (last - first)));
  svg.setAttribute("width", (last - first) * scale);
  svg.setAttribute("height", bottom * scale);
  svg.setAttribute("viewBox", `${first} 0 ${last - first} ${bottom}`);
  for (const owner of data.owners) {
    const { x, y } = centres.get(owner.id);
    const node = make("g", { class: owner.deadlocked ? "node deadlocked" : "node" },
      make("title", {}, `${person(owner)}${owner.label ? ` (${text(owner.label)})` : ""}`),
      make("rect", { x: x - WIDTH / 2, y: y - HEIGHT / 2, width: WIDTH, height: HEIGHT, rx: 7 }),
      make("text", { x, y: y + (owner.label ? -3 : 4), "text-anchor": "middle" }, cut(person(owner), LETTERS)));
    if (owner.label) node.append(make("text", { class: "sub", x, y: y + 13, "text-anchor": "middle" }, cut(text(owner.label), LETTERS + 4)));
    svg.append(node);
  }
  svg.append(...labels);
  container.replaceChildren(svg, ...notes);
}
