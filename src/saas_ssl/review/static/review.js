// The review page: rows come from the server, decisions go to it, and what it answers is shown.
// Nothing is kept here that would be missed: the server has written a decision before it answers.

const PAGE = 60;
const FEW_CLASSES = 6; // so many have a button on every row
const POLL = 4000; // milliseconds between looks for what another window has decided
const DIGITS = "1234567890";
const LETTERS = "abcdefghijklmnopqrstvwxyz"; // without u, which undoes

const at = (id) => document.getElementById(id);
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const whole = (n) => n.toLocaleString("en");

let run; // what the server says of the run
let keys; // class -> the key that gives it
let classOf; // the other way round
let shown = []; // rows of this page
let current = 0; // which of them the keys are about
let starts = [0]; // where this page and those before it begin in the order
let next = null; // where the next one begins
let seq = 0; // the last action that is known here
let undoable = null;
let latest = 0; // the last request for rows: answers to earlier ones come too late

// ---------------------------------------------------------------- talking to the server

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. What was shown as saved is saved; start saas review again to go on.");
  }
  const isJson = (response.headers.get("content-type") || "").startsWith("application/json");
  const answer = isJson ? await response.json() : { error: await response.text() };
  if (response.ok || response.status === 409) return { conflict: response.status === 409, ...answer };
  throw new Error(answer.error || `The server answers ${response.status}.`);
}

function trouble(message) {
  at("trouble").textContent = message || "";
  at("trouble").hidden = !message;
}

async function trying(action) {
  try {
    await action();
  } catch (error) {
    trouble(error.message);
  }
}

// ---------------------------------------------------------------- small parts of the page

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function assignKeys(classes) {
  const free = new Set([...DIGITS, ...LETTERS]);
  const found = new Map();
  const give = (name, key) => { if (free.delete(key)) found.set(name, key); };
  for (const name of classes) if (DIGITS.includes(name) && name.length === 1) give(name, name);
  if (found.size === 0) classes.slice(0, DIGITS.length).forEach((name, n) => give(name, DIGITS[n]));
  for (const name of classes) if (!found.has(name)) give(name, name.charAt(0).toLowerCase());
  for (const name of classes) {
    const letter = [...LETTERS].find((key) => free.has(key));
    if (!found.has(name) && letter) give(name, letter);
  }
  return found;
}

function said(row) {
  if (!row.checked) return "not checked";
  return row.checked_label === null ? "cannot tell" : `checked: ${row.checked_label}`;
}

function spoken(row) {
  const runner = row.runner_up ? `, or ${row.runner_up}, ${percent(row.runner_up_probability, 0)}` : "";
  return `${row.id}: ${row.label}, ${percent(row.probability, 0)}${runner}; ${said(row)}`;
}

function choicesOf(row) {
  const wanted = run.classes.length <= FEW_CLASSES ? [...run.classes] : [row.runner_up];
  return wanted.filter((name) => name && name !== row.label);
}

function button(text, key, action, attributes = {}) {
  const hint = key && key !== text ? element("kbd", {}, key) : null;
  const made = element("button", { type: "button", tabIndex: -1, ...attributes }, text, hint ? " " : "", hint);
  made.addEventListener("click", action);
  return made;
}

function pictureOf(row) {
  const image = element("img", {
    src: `/image/thumb/${row.row}?${run.session}`, alt: "", loading: "lazy", decoding: "async",
  });
  image.addEventListener("load", () => image.classList.toggle("small", image.naturalWidth <= 64));
  const frame = element("button", {
    type: "button", class: "frame", tabIndex: -1, "aria-label": `Enlarge ${row.id}`,
  }, image);
  image.addEventListener("error", () => frame.replaceChildren("This image can no longer be read."));
  frame.addEventListener("click", () => zoom(row));
  return frame;
}

function numbersOf(row) {
  const parts = row.features.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, Number(value.toPrecision(4)).toString())));
  return element("dl", { class: "numbers" }, ...parts);
}

function tagOf(row) {
  if (row.reason) return row.reason;
  return row.source === "given" ? "given" : "";
}

function cardOf(row, place) {
  const guess = element("p", { class: "guess" },
    element("strong", {}, row.label), element("span", { class: "p" }, percent(row.probability)),
    row.runner_up
      ? element("span", { class: "runner" }, `or ${row.runner_up}, ${percent(row.runner_up_probability)}`) : null);
  const name = element("span", { class: "name", title: row.id }, element("bdi", {}, row.id));
  const tag = tagOf(row) ? element("p", { class: "tag wide" }, tagOf(row)) : null;
  const decided = row.checked
    ? element("p", { class: "decided wide" }, row.checked_label === null ? "cannot tell" : `✓ ${row.checked_label}`) : null;
  const choices = element("div", { class: "choices" },
    button("Accept", "⏎", () => decide([row], row.label), { class: "accept", title: `It is ${row.label}` }),
    ...choicesOf(row).map((label) => button(label, keys.get(label), () => decide([row], label))),
    button("…", null, () => pick(row), { title: "Another class (.)", "aria-label": "Another class" }),
    button("?", null, () => decide([row], null), { title: "Cannot tell (-)", "aria-label": "Cannot tell" }));
  const card = element("li", {
    class: row.checked ? "row checked" : "row", tabIndex: place === current ? 0 : -1,
    "data-row": String(row.row), "aria-label": spoken(row),
  }, ...(run.images ? [pictureOf(row), name, guess] : [name, guess, numbersOf(row)]), tag, decided, choices);
  card.addEventListener("focus", () => setCurrent(place));
  card.addEventListener("mousedown", () => setCurrent(place));
  return card;
}

// ---------------------------------------------------------------- the page as a whole

function draw() {
  const list = at("rows");
  list.className = run.images ? "images" : "features";
  list.replaceChildren(...shown.map(cardOf));
}

function redraw(rows) {
  const cards = at("rows").children;
  for (const row of rows) {
    const place = shown.findIndex((other) => other.row === row.row);
    if (place < 0) continue;
    const old = cards[place];
    const focused = old.contains(document.activeElement);
    const image = old.querySelector(".frame");
    shown[place] = row;
    const card = cardOf(row, place);
    if (image) card.querySelector(".frame").replaceWith(image); // it does not flicker
    old.replaceWith(card);
    if (focused) card.focus({ preventScroll: true });
  }
}

function setCurrent(place) {
  const cards = at("rows").children;
  if (cards[current]) cards[current].tabIndex = -1;
  current = place;
  if (cards[current]) cards[current].tabIndex = 0;
}

function go(place) {
  if (!shown.length) return;
  setCurrent(Math.max(0, Math.min(shown.length - 1, place)));
  at("rows").children[current].focus();
}

function goOn() {
  const open = (row) => !row.checked;
  const after = shown.findIndex((row, place) => place > current && open(row));
  const any = shown.findIndex(open);
  if (after >= 0) go(after);
  else if (any >= 0) go(any);
  else if (next !== null) turn(1);
  else go(current);
}

function inColumn(direction) {
  const cards = [...at("rows").children];
  const box = cards[current].getBoundingClientRect();
  const rest = direction > 0 ? cards.slice(current + 1) : cards.slice(0, current).reverse();
  const other = rest.find((card) => {
    const found = card.getBoundingClientRect();
    return Math.abs(found.left - box.left) < 2 && Math.abs(found.top - box.top) > 2;
  });
  return other ? cards.indexOf(other) : current;
}

function tell(answer) {
  seq = answer.seq;
  undoable = answer.undo;
  at("undo").disabled = undoable === null;
  const p = answer.progress;
  at("bar").max = Math.max(1, p.to_check);
  at("bar").value = p.to_check - p.left;
  at("done").textContent =
    `${whole(p.to_check - p.left)} of ${whole(p.to_check)} checked, ${whole(p.corrected)} corrected.`;
  at("accuracy").textContent = p.accuracy === null
    ? "How many labels are right is not known."
    : `Labels expected to be right: ${percent(p.accuracy.estimate, 2)} ` +
      `(${percent(p.accuracy.low)} to ${percent(p.accuracy.high)}).`;
  at("suggestions").textContent = p.suggestions === 0 ? "" :
    `Suggestions right so far: ${whole(p.suggestions_right)} of ${whole(p.suggestions)} ` +
    `(${p.suggestions_expected.toFixed(p.suggestions < 20 ? 1 : 0)} expected).`;
}

function filters() {
  return { show: at("show").value, label: at("label").value, order: at("order").value, text: at("text").value };
}

function remember() {
  const state = new URLSearchParams({ ...filters(), starts: starts.join(".") });
  history.replaceState(null, "", `/#${state}`); // this also takes the token out of sight
}

function recall() {
  const state = new URLSearchParams(location.hash.slice(1));
  for (const name of ["show", "label", "order", "text"]) if (state.has(name)) at(name).value = state.get(name);
  const found = (state.get("starts") || "0").split(".").map(Number).filter(Number.isSafeInteger);
  starts = found.length ? found : [0];
}

async function load() {
  const mine = ++latest;
  const query = new URLSearchParams({ ...filters(), start: starts.at(-1), limit: PAGE });
  const answer = await ask(`/api/rows?${query}`);
  if (mine !== latest) return;
  trouble();
  shown = answer.rows;
  next = answer.next;
  current = 0;
  tell(answer);
  draw();
  at("empty").hidden = shown.length > 0;
  at("empty").textContent = starts.length > 1 || answer.before > 0
    ? "No more rows from here on; those before are on the previous pages."
    : at("show").value === "to-check" && !at("text").value && !at("label").value
      ? "Everything is checked. Well done! End the program with Ctrl-C; it says how to use your labels."
      : "No row is like that.";
  at("place").textContent = shown.length
    ? `${whole(answer.before + 1)} to ${whole(answer.before + shown.length)} of ${whole(answer.matching)}` : "";
  at("previous").disabled = starts.length < 2;
  at("next").disabled = next === null;
  at("accept-all").disabled = shown.length === 0;
  remember();
}

async function turn(direction) {
  if (direction > 0 && next !== null) starts.push(next);
  else if (direction < 0 && starts.length > 1) starts.pop();
  else return;
  await trying(load);
  window.scrollTo(0, 0);
  go(0);
}

async function filtered() {
  starts = [0];
  await trying(load);
}

// ---------------------------------------------------------------- what a person does

async function decide(rows, label) {
  const wishes = rows.map((row) => ({ row: row.row, label: label === undefined ? row.label : label, seen: row.seen }));
  const single = rows.length === 1;
  const place = single ? shown.findIndex((row) => row.row === rows[0].row) : current;
  if (single) setCurrent(place);
  const cards = rows.map((row) => document.querySelector(`[data-row="${row.row}"]`));
  cards.forEach((card) => card && card.classList.add("saving"));
  try {
    const answer = await ask("/api/decide", { decisions: wishes });
    trouble();
    redraw(answer.rows);
    tell(answer);
    if (answer.conflict) {
      trouble(`Not saved: ${answer.rows.length === 1 ? answer.rows[0].id : "some rows"} changed meanwhile, in another window. Look again, and repeat it if you still want to.`);
      return;
    }
    at("saved").textContent = single
      ? `Saved: ${rows[0].id} is ${wishes[0].label === null ? "unclear" : wishes[0].label}.`
      : `Saved: ${whole(rows.length)} rows accepted.`;
    if (at("rows").contains(document.activeElement) || document.activeElement === document.body) goOn();
  } catch (error) {
    trouble(error.message);
  } finally {
    cards.forEach((card) => card && card.classList.remove("saving"));
  }
}

async function acceptAll() {
  const open = shown.filter((row) => !row.checked);
  if (open.length) await decide(open);
}

async function undo() {
  if (undoable === null) return;
  const answer = await ask("/api/undo", { seen: undoable.seq });
  trouble();
  redraw(answer.rows);
  tell(answer);
  if (answer.conflict) {
    trouble("Not undone: another window has decided meanwhile. Press u again to undo that.");
    return;
  }
  const [row] = answer.rows;
  at("saved").textContent = answer.rows.length === 1
    ? `Undone: ${row.id} is ${said(row)}.` : `Undone: ${whole(answer.rows.length)} rows.`;
  const place = shown.findIndex((other) => other.row === row.row);
  if (place >= 0) go(place);
  else await load();
}

function zoom(row) {
  if (!run.images) return;
  const image = at("zoom-image");
  image.onload = () => image.classList.toggle("small", image.naturalWidth <= 64);
  image.src = `/image/full/${row.row}?${run.session}`;
  image.alt = spoken(row);
  at("zoom-name").textContent = row.id;
  at("zoom").showModal();
}

function pick(row) {
  const list = () => {
    const text = at("picker-text").value.toLowerCase();
    const names = run.classes.filter((name) => name.toLowerCase().includes(text)).slice(0, 200);
    at("picker-list").replaceChildren(...names.map((name) => element("li", {}, button(name, keys.get(name), () => choose(name), { tabIndex: 0 }))));
  };
  const choose = (name) => {
    at("picker").close();
    decide([row], name);
  };
  at("picker-text").value = "";
  at("picker-text").oninput = list;
  at("picker-text").onkeydown = (event) => {
    const first = at("picker-list").querySelector("button");
    if (event.key === "Enter" && first) {
      event.preventDefault();
      first.click();
    }
  };
  list();
  at("picker").showModal();
}

const KEYS = {
  ArrowLeft: () => go(current - 1),
  ArrowRight: () => go(current + 1),
  ArrowUp: () => go(inColumn(-1)),
  ArrowDown: () => go(inColumn(1)),
  Home: () => go(0),
  End: () => go(shown.length - 1),
  PageDown: () => turn(1),
  PageUp: () => turn(-1),
  Enter: () => (shown[current] ? decide([shown[current]], shown[current].label) : null),
  " ": () => (shown[current] ? zoom(shown[current]) : null),
  ".": () => (shown[current] ? pick(shown[current]) : null),
  "-": () => (shown[current] ? decide([shown[current]], null) : null),
  "?": () => at("manual").showModal(),
  "/": () => at("text").focus(),
  u: undo,
};

function onKey(event) {
  const target = event.target;
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  if (target.matches("input, select, textarea")) {
    if (event.key === "Escape" || (event.key === "Enter" && target.matches("input"))) go(current);
    return;
  }
  if (target.matches("button, a") && ["Enter", " "].includes(event.key)) return; // it is pressed
  const label = classOf.get(event.key.toLowerCase());
  const action = event.key === "Enter" && event.shiftKey ? acceptAll
    : KEYS[event.key] || (label !== undefined && shown[current] ? () => decide([shown[current]], label) : null);
  if (!action || event.repeat && !event.key.startsWith("Arrow")) return;
  event.preventDefault();
  trying(action);
}

async function look() {
  if (document.hidden) return;
  const before = seq;
  const answer = await ask(`/api/changes?since=${before}`);
  if (answer.seq === seq || before !== seq) return; // nothing new, or a decision came in between
  redraw(answer.rows);
  tell(answer);
}

async function start() {
  run = await ask("/api/run");
  keys = assignKeys(run.classes);
  classOf = new Map([...keys].map(([name, key]) => [key, name]));
  document.title = `Review: ${run.title}`;
  at("title").textContent = `Review: ${run.title}`;
  at("label").append(...run.classes.map((name) => element("option", { value: name }, name)));
  at("class-keys").replaceChildren(...[...keys].map(([name, key]) =>
    element("span", {}, element("kbd", {}, key), " ", element("bdi", {}, name))));
  recall();
  for (const id of ["show", "label", "order"]) at(id).addEventListener("change", filtered);
  let typing;
  at("text").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(filtered, 200);
  });
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("previous").addEventListener("click", () => turn(-1));
  at("next").addEventListener("click", () => turn(1));
  at("accept-all").addEventListener("click", () => trying(acceptAll));
  at("undo").addEventListener("click", () => trying(undo));
  at("help").addEventListener("click", () => at("manual").showModal());
  document.addEventListener("keydown", onKey);
  await load();
  go(0);
  setInterval(() => trying(look), POLL);
}

trying(start);
