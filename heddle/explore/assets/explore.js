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
for (const [name, values] of Object.entries(given.pins)) {
  const label = document.createElement("label");
  const select = Object.assign(document.createElement("select"), { id: `pin-${name}` });
  select.append(new Option("free", ""), ...values.map((value) => new Option(String(value), JSON.stringify(value))));
  label.append(document.createTextNode(`${name} `), select);
  $("pins").append(label);
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
const later = (work) => { clearTimeout(timer); timer = setTimeout(work, 120); };
for (const name of NAMES) $(name).addEventListener("input", (event) => later(() => changed(name, event.target.value.trim())));
for (const name of Object.keys(given.pins)) $(`pin-${name}`).addEventListener("change", (event) => changed(`pin-${name}`, event.target.value));
$("nodes-slider").addEventListener("input", (event) => {
  $("nodes").value = 2 ** Number(event.target.value);
  later(() => changed("nodes", $("nodes").value));
});
$("knobs").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("popstate", () => { show(recalled()); ask(); });

// --- questions -------------------------------------------------------------------------------------------------------

async function post(path, question) {
  const answer = await fetch(path, {
    method: "POST", body: JSON.stringify(question),
    headers: { "X-Heddle-Token": token, "X-Heddle-Page": page, "Content-Type": "application/json" },
  });
  if (!answer.ok) throw new Error(`The server answered ${answer.status}. Is \`heddle explore\` still running?`);
  return answer.json();
}

async function ask() {
  const number = ++asked;
  $("answer").setAttribute("aria-busy", "true");
  $("busy").textContent = "searching…";
  const began = performance.now();
  let found;
  try {
    found = await post("/plan", choices);
  } catch (error) {
    found = { error: { what: String(error.message || error), why: "", hint: "", field: "" } };
  }
  if (number !== asked || found.canceled) return;
  $("answer").setAttribute("aria-busy", "false");
  draw(found);
  document.documentElement.dataset.answered = String(number);
  $("busy").textContent = found.error ? "" : `answered in ${Math.round(performance.now() - began)} ms`;
  if (!found.error) scale(number);
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
      knob.parentElement.append(words);
    }
    return;
  }
  answered = found;
  $("summary").textContent = found.summary;
  $("pinned").textContent = found.pinned;
  for (const part of document.querySelectorAll("[data-part]")) part.innerHTML = found.parts[part.dataset.part];
  const linked = [];
  for (const root of document.querySelectorAll("[data-timeline]")) {
    new Timeline(root, found.timelines[root.dataset.timeline], given.kinds, given.colors, linked);
  }
  linked[0]?.look(0, linked[0].whole);
  window.onresize = () => linked.forEach((each) => each.resize());
  for (const button of document.querySelectorAll("[data-select]")) {
    button.addEventListener("click", () => pick({ selected: Number(button.dataset.select), other: null }));
  }
  for (const box of document.querySelectorAll("[data-other]")) {
    box.addEventListener("change", () => pick({ other: Number(box.dataset.other) }));
  }
  for (const button of document.querySelectorAll("[data-plan]")) {
    button.addEventListener("click", () => copy(found.plans[button.dataset.plan], button));
  }
}

function pick(change) {
  choices = { ...choices, ...change };
  remember();
  ask();
}

async function copy(text, button) {
  await navigator.clipboard?.writeText(text).catch(() => {});
  const before = button.textContent;
  if (before) { button.textContent = "copied"; setTimeout(() => { button.textContent = before; }, 1200); }
}

$("save").addEventListener("click", () => {
  if (!answered) return;
  const link = Object.assign(document.createElement("a"), {
    href: URL.createObjectURL(new Blob([answered.job], { type: "application/toml" })), download: "job.toml",
  });
  link.click();
  URL.revokeObjectURL(link.href);
});
$("link").addEventListener("click", (event) => copy(location.href.replace(/\?token=[^#]*/, ""), event.target));

// --- scaling ---------------------------------------------------------------------------------------------------------

async function scale(number) {
  const found = await post("/scaling", choices).catch(() => null);
  if (number !== asked || !found?.points) return;
  const canvas = $("scaling"), points = found.points;
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio; canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const most = Math.max(...points.map((each) => each.tokens_per_second), 1), last = points.at(-1)?.devices ?? 1;
  const x = (devices) => 60 + (width - 80) * (devices / last), y = (rate) => height - 26 - (height - 44) * (rate / most);
  pen.strokeStyle = color("--line"); pen.fillStyle = color("--soft"); pen.font = "12px system-ui";
  pen.beginPath(); pen.moveTo(60, 8); pen.lineTo(60, height - 26); pen.lineTo(width - 10, height - 26); pen.stroke();
  if (points.length) {
    const each = points[0].tokens_per_second / points[0].devices;
    pen.setLineDash([4, 4]); pen.beginPath(); pen.moveTo(x(0), y(0)); pen.lineTo(x(Math.min(last, most / each)), y(Math.min(most, each * last))); pen.stroke();
    pen.setLineDash([]);
  }
  pen.strokeStyle = pen.fillStyle = color("--accent");
  pen.lineWidth = 2; pen.beginPath();
  points.forEach((each, i) => pen[i ? "lineTo" : "moveTo"](x(each.devices), y(each.tokens_per_second)));
  pen.stroke();
  for (const each of points) {
    pen.beginPath(); pen.arc(x(each.devices), y(each.tokens_per_second), 4, 0, 7); pen.fill();
    pen.fillText(`${each.devices}`, x(each.devices) - 10, height - 10);
  }
  $("scaling-words").textContent = points.map((each) => `${each.devices} devices: ${Math.round(each.tokens_per_second).toLocaleString("en")} tokens/s, MFU ${(100 * each.mfu).toFixed(1)} %`).join("; ");
}

show(recalled());
remember(true);
ask();
