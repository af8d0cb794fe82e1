// The page on which one turns the knobs: every change asks anew, and a newer question ends the one before it.
"use strict";

const given = JSON.parse(document.getElementById("data").textContent);
const token = new URLSearchParams(location.search).get("token");
const page = crypto.randomUUID();
const $ = (id) => document.getElementById(id);
const NAMES = ["model", "cluster", "nodes", "sequence", "global_batch", "precision", "memory_gib", "tokens", "price"];
let choices = null, asked = 0, answered = null;

const style = document.createElement("style");
style.textContent = Object.entries(given.classes).map(([name, color]) => `.${name}{background:${color}}`).join("");
document.head.append(style);

// --- knobs -----------------------------------------------------------------------------------------------------------

const options = (list, values) => list.replaceChildren(...values.map((value) => new Option(String(value), String(value))));
options($("models"), given.models);
options($("clusters"), given.clusters);
options($("precision"), given.precisions);
for (const name of Object.keys(given.pins)) {
  const label = document.createElement("label");
  label.append(document.createTextNode(`${name.replaceAll("_", " ")} `), Object.assign(document.createElement("select"), { id: `pin-${name}` }));
  $("pins").append(label);
}
legal(given.pins);

// Which values a field may have depends on the model and the devices; one that is pinned stays, legal or not.
function legal(values) {
  for (const [name, list] of Object.entries(values)) {
    const select = $(`pin-${name}`), pinned = select.value, words = list.map((value) => JSON.stringify(value));
    select.replaceChildren(new Option("free", ""), ...list.map((value, i) => new Option(String(value), words[i])));
    if (pinned && !words.includes(pinned)) select.append(new Option(JSON.parse(pinned), pinned));
    select.value = pinned;
    select.parentElement.hidden = list.length < 2 && !pinned;
  }
}

function show(state) {
  choices = { ...given.first, pins: {}, selected: 0, other: null, ...state };
  for (const name of NAMES) $(name).value = choices[name] ?? "";
  $("nodes-slider").value = Math.round(Math.log2(Math.max(1, Number(choices.nodes) || 1)));
  for (const name of Object.keys(given.pins)) {
    const pinned = choices.pins[name];
    const select = $(`pin-${name}`), word = pinned === undefined ? "" : JSON.stringify(pinned);
    if (word && ![...select.options].some((option) => option.value === word)) select.append(new Option(String(pinned), word));
    select.value = word;
  }
}

function changed(name, value) {
  if (name.startsWith("pin-")) {
    const pins = { ...choices.pins };
    if (value === "") delete pins[name.slice(4)]; else pins[name.slice(4)] = JSON.parse(value);
    choices = { ...choices, pins };
  } else {
    choices = { ...choices, [name]: value };
    if (name === "model") choices = { ...choices, sequence: "" };
  }
  choices = { ...choices, selected: 0, other: null };
  remember();
  ask();
}

// The state stands in the fragment: it never reaches a server, and a link to it is a link to the same answer.
function remember(replace = false) {
  const kept = Object.fromEntries(Object.entries(choices).filter(([name, value]) => value !== given.first[name]));
  history[replace ? "replaceState" : "pushState"](null, "", `#${encodeURIComponent(JSON.stringify(kept))}`);
}

function recalled() {
  try {
    const state = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    return state && typeof state === "object" && !Array.isArray(state) ? state : {};
  } catch { return {}; }
}

let timer = null;
const later = (work) => { clearTimeout(timer); timer = setTimeout(work, 60); };
for (const name of NAMES) $(name).addEventListener("input", (event) => later(() => changed(name, event.target.value.trim())));
for (const name of Object.keys(given.pins)) $(`pin-${name}`).addEventListener("change", (event) => changed(`pin-${name}`, event.target.value));
$("nodes-slider").addEventListener("input", (event) => {
  $("nodes").value = 2 ** Number(event.target.value);
  later(() => changed("nodes", $("nodes").value));
});
$("knobs").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("popstate", () => { show(recalled()); ask(); });

// --- questions -------------------------------------------------------------------------------------------------------

// An answer comes in parts, a line of JSON each, the quickest first.
async function* post(path, question) {
  const answer = await fetch(path, {
    method: "POST", body: JSON.stringify(question),
    headers: { "X-Heddle-Token": token, "X-Heddle-Page": page, "Content-Type": "application/json" },
  });
  if (!answer.ok) throw new Error(`The server answered ${answer.status}. Is \`heddle explore\` still running?`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
  }
}

async function ask(path = "/plan", question = choices) {
  const number = ++asked, began = performance.now();
  const since = () => `${Math.round(performance.now() - began)} ms`;
  $("answer").setAttribute("aria-busy", "true");
  $("busy").textContent = "searching…";
  if (path === "/plan") answered = null;
  let failed = false;
  try {
    for await (const part of post(path, question)) {
      if (number !== asked || part.canceled) return;
      $("answer").setAttribute("aria-busy", "false");
      failed = Boolean(part.error);
      draw(part);
      $("busy").textContent = part.quick ? `first look after ${since()}; ranking…` : "";
      if (!failed) document.documentElement.dataset.pictured = `${number} ${Math.round(performance.now() - began)}`;
    }
  } catch (error) {
    if (number !== asked) return;
    failed = true;
    draw({ error: { what: String(error.message || error), why: "", hint: "", field: "" } });
  }
  if (number !== asked) return;
  $("answer").setAttribute("aria-busy", "false");
  document.documentElement.dataset.answered = String(number);
  $("busy").textContent = failed ? "" : `answered in ${since()}`;
  if (!failed && path === "/plan") scale(number);
}

function draw(found) {
  for (const each of document.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
  document.querySelector(".knobs .why")?.remove();
  const error = $("error");
  error.hidden = !found.error;
  if (found.error) {
    const { what, why, hint, field } = found.error;
    error.textContent = [what, why, hint].filter(Boolean).join(" ");
    const knob = $(field) ?? $(`pin-${field}`);
    if (knob) {
      knob.setAttribute("aria-invalid", "true");
      const words = Object.assign(document.createElement("p"), { className: "why", textContent: `${what} ${hint}` });
      knob.parentElement.hidden = false;
      knob.parentElement.append(words);
    }
    return;
  }
  answered = { ...answered, ...found };
  if (found.summary) $("summary").textContent = found.summary;
  if (found.quick) $("table").replaceChildren();
  if (found.legal) legal(found.legal);
  $("pinned").textContent = answered.pinned ?? "";
  if (found.table) $("table").innerHTML = found.table;
  for (const [name, part] of Object.entries(found.parts ?? {})) {
    const place = document.querySelector(`[data-part=${name}]`);
    place.innerHTML = part;
    if (name === "front") front(place);
  }
  if (found.timelines) timelines(found.timelines);
  if (found.exports) forms(found.exports);
  for (const button of document.querySelectorAll("[data-select]")) {
    button.onclick = () => pick({ selected: Number(button.dataset.select), other: null });
  }
  for (const box of document.querySelectorAll("[data-other]")) {
    box.onchange = () => pick({ other: Number(box.dataset.other) });
  }
}

// Plans as points: pointing at one says what it is, arrow keys go from one to the next, a click shows it.
function front(place) {
  const points = [...place.querySelectorAll(".point")], status = place.querySelector(".status");
  for (const [i, point] of points.entries()) {
    const tell = () => { status.textContent = point.ariaLabel.replace(/; [^;]*$/, ""); };
    point.addEventListener("mouseenter", tell);
    point.addEventListener("focus", tell);
    point.addEventListener("click", () => ask("/show", { ...choices, plans: [answered.front[point.dataset.plan]] }));
    point.addEventListener("keydown", (event) => {
      const next = points[i + ({ ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key] ?? points.length)];
      if (next) { event.preventDefault(); next.focus(); }
    });
  }
}

function timelines(found) {
  const linked = [];
  for (const root of document.querySelectorAll("[data-timeline]")) {
    new Timeline(root, found[root.dataset.timeline], given.kinds, given.colors, linked);
  }
  linked[0]?.look(0, linked[0].whole);
  window.onresize = () => linked.forEach((each) => each.resize());
}

// Another of the ranked plans: they are known, so nothing is searched.
function pick(change) {
  choices = { ...choices, ...change };
  remember();
  if (!answered?.ranked) { ask(); return; }
  for (const button of document.querySelectorAll("[data-select]")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.select) === choices.selected));
  }
  for (const box of document.querySelectorAll("[data-other]")) {
    box.disabled = Number(box.dataset.other) === choices.selected;
    box.checked = Number(box.dataset.other) === choices.other;
  }
  const plans = [choices.selected, choices.other].filter((place) => place !== null).map((place) => answered.ranked[place]);
  ask("/show", { ...choices, plans });
}

async function copy(text, button) {
  await navigator.clipboard?.writeText(text).catch(() => {});
  const before = button.textContent;
  if (before) { button.textContent = "copied"; setTimeout(() => { button.textContent = before; }, 1200); }
}

function forms(found) {
  if ($("form").options.length === 0) options($("form"), Object.keys(found));
  unsaid();
}

// What the other trainer has no word for stands beside the button that writes its file.
function unsaid() {
  const lines = answered?.exports?.[$("form").value]?.missing ?? [];
  const list = document.createElement("ul");
  list.append(...lines.map((line) => Object.assign(document.createElement("li"), { textContent: line })));
  $("missing").replaceChildren(...(lines.length ? [Object.assign(document.createElement("p"), { textContent: "Not expressed:" }), list] : []));
}

$("form").addEventListener("change", unsaid);
$("save").addEventListener("click", () => {
  const made = answered?.exports?.[$("form").value];
  if (!made) return;
  const link = Object.assign(document.createElement("a"), {
    href: URL.createObjectURL(new Blob([made.text], { type: "text/plain" })), download: made.file,
  });
  link.click();
  URL.revokeObjectURL(link.href);
});
$("link").addEventListener("click", (event) => copy(location.href.replace(/\?token=[^#]*/, ""), event.target));

// --- scaling ---------------------------------------------------------------------------------------------------------

async function scale(number) {
  let found = null;
  try {
    for await (const part of post("/scaling", choices)) found = part;
  } catch { return; }
  if (number !== asked || !found?.points) return;
  const canvas = $("scaling"), points = found.points;
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio; canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rate = (each) => each.tokens_per_second, top = (each) => rate(each) * (1 + each.share);
  const most = Math.max(...points.map(top), 1), last = points.at(-1)?.devices ?? 1;
  const left = 64, x = (devices) => left + (width - left - 20) * (devices / last), y = (value) => height - 26 - (height - 44) * (value / most);
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  pen.strokeStyle = color("--line"); pen.fillStyle = color("--soft"); pen.font = "12px system-ui";
  pen.beginPath(); pen.moveTo(left, 8); pen.lineTo(left, height - 26); pen.lineTo(width - 10, height - 26); pen.stroke();
  pen.textAlign = "right";
  for (const share of [0, 0.5, 1]) pen.fillText(short.format(share * most), left - 6, y(share * most) + 4);
  pen.textAlign = "center";
  if (points.length) {
    const each = rate(points[0]) / points[0].devices, end = Math.min(last, most / each);
    pen.setLineDash([4, 4]); pen.beginPath(); pen.moveTo(x(0), y(0)); pen.lineTo(x(end), y(each * end)); pen.stroke();
    pen.setLineDash([]);
  }
  pen.strokeStyle = pen.fillStyle = color("--accent");
  pen.lineWidth = 2; pen.beginPath();
  points.forEach((each, i) => pen[i ? "lineTo" : "moveTo"](x(each.devices), y(rate(each))));
  pen.stroke();
  let free = 0; // to the right of the last label
  for (const each of points) {
    const at = x(each.devices);
    pen.lineWidth = 1.5; pen.beginPath(); pen.moveTo(at, y(top(each))); pen.lineTo(at, y(rate(each) / (1 + each.share))); pen.stroke();
    pen.beginPath(); pen.arc(at, y(rate(each)), 4, 0, 7); pen.fill();
    if (at - 16 > free) { pen.fillText(String(each.devices), at, height - 10); free = at + 16; }
  }
  $("scaling-words").textContent = points.map((each) => `${each.devices} devices: ${Math.round(rate(each)).toLocaleString("en")} tokens/s, MFU ${(100 * each.mfu).toFixed(1)} %`).join("; ");
  document.documentElement.dataset.scaled = String(number);
}

if (window.matchMedia("(max-width: 900px)").matches) $("choices").open = false;
show(recalled());
remember(true);
ask();
