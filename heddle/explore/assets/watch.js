// A run as it goes on: its rows come as events, and curves are drawn once per frame, however many came.
"use strict";

const given = JSON.parse(document.getElementById("data").textContent);
const token = new URLSearchParams(location.search).get("token");
const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const MOST = 4000; // points that are kept; older ones are thinned out
const runs = given.runs.map((about, number) => ({ ...about, rows: [], state: {}, signs: [], color: PALETTE[number % PALETTE.length] }));
const alarms = [];
const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let frame = null;
const redraw = () => { frame ??= requestAnimationFrame(() => { frame = null; draw(); }); };

function draw() {
  for (const canvas of document.querySelectorAll("canvas.live")) curve(canvas, canvas.dataset.column);
  document.getElementById("runs").replaceChildren(table());
  log();
  const list = document.getElementById("alarms");
  const known = [...runs.flatMap((run, number) => run.signs.map((each) => ({ run: number, ...each }))), ...alarms.slice(-50).reverse()];
  const words = known.map((each) => `${runs[each.run].name}${each.step === null ? "" : `, step ${each.step}`}: ${each.what}`);
  const line = (text) => Object.assign(document.createElement("li"), { textContent: text, className: words.length ? "alarm" : "" });
  list.replaceChildren(...(words.length ? words : ["Nothing so far."]).map(line));
}

function table() {
  const head = ["run", "model", "step", "loss", "tokens/s", "MFU", "a step", "predicted", "state"];
  const shown = document.createElement("table"), wide = Object.assign(document.createElement("div"), { className: "wide", tabIndex: 0, role: "region", ariaLabel: "runs" });
  wide.append(shown);
  const row = (cells, kind) => {
    const line = document.createElement("tr");
    for (const [i, cell] of cells.entries()) {
      const made = document.createElement(kind ?? (i ? "td" : "th"));
      made.textContent = cell;
      if (i > 1 && i < 8) made.className = "n";
      line.append(made);
    }
    return line;
  };
  shown.append(row(head, "th"));
  for (const run of runs) {
    const last = run.rows.filter((each) => "loss" in each).at(-1) ?? {};
    const seconds = run.state.ends_in;
    const ends = seconds === undefined ? "" : `, ends in ${Math.floor(seconds / 3600)}:${String(Math.floor(seconds / 60) % 60).padStart(2, "0")}:${String(seconds % 60).padStart(2, "0")}, at ${clock.format(Date.now() + 1000 * seconds)}`;
    const line = row([
      run.name, run.model, `${run.state.done ?? 0} of ${run.state.steps ?? run.steps}`,
      last.loss?.toFixed(4) ?? "–", last.tokens_per_second ? Math.round(last.tokens_per_second).toLocaleString("en") : "–",
      last.mfu === undefined || last.mfu === null ? "–" : `${(100 * last.mfu).toFixed(1)} %`,
      run.state.usual ? `${digits(run.state.usual)} s` : "–", predicted(run), `${run.state.state ?? ""}${ends}`,
    ]);
    const swatch = Object.assign(document.createElement("i"), { className: "swatch", ariaHidden: "true" });
    swatch.style.background = run.color;
    line.firstChild.prepend(swatch);
    shown.append(line);
  }
  return wide;
}

const digits = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });

// What was predicted for a step, and how much longer it takes.
function predicted(run) {
  const expected = run.expected.seconds;
  if (!expected) return "–";
  const off = run.state.usual ? `, ${run.state.usual >= expected ? "+" : "−"}${digits(Math.abs(100 * (run.state.usual / expected - 1)))} %` : "";
  return `${digits(expected)} s${off}`;
}

function curve(canvas, column) {
  const shown = runs.some((run) => run.rows.some((row) => Number.isFinite(row[column])));
  if (!shown && canvas.parentElement.hidden) return;
  canvas.parentElement.hidden = false;
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const points = runs.map((run) => run.rows.filter((row) => Number.isFinite(row[column])));
  const known = points.flat().map((row) => row[column]).sort((a, b) => a - b);
  if (!known.length) return;
  const expected = column === "loss" ? [] : runs.map((run) => run.expected[column]).filter(Number.isFinite);
  const low = Math.min(known[0], ...expected), high = Math.max(known[Math.ceil(0.995 * (known.length - 1))], ...expected);
  const margin = 0.06 * (high - low) || 0.1 * Math.abs(high) || 1;
  const [bottom, top] = [low - margin, high + margin];
  const first = Math.min(...points.flatMap((each) => each[0]?.step ?? [])), last = Math.max(...points.flatMap((each) => each.at(-1)?.step ?? []));
  const x = (step) => 64 + (last > first ? (step - first) / (last - first) : 0.5) * (width - 76);
  const y = (value) => height - 20 - ((value - bottom) / (top - bottom)) * (height - 28);
  pen.strokeStyle = paint("--line"); pen.fillStyle = paint("--soft"); pen.font = "12px system-ui";
  pen.beginPath(); pen.moveTo(64, 6); pen.lineTo(64, height - 20); pen.lineTo(width - 8, height - 20); pen.stroke();
  const written = writer(column);
  pen.textAlign = "right";
  for (const value of ticks(bottom, top, 6)) {
    pen.globalAlpha = 0.6; pen.beginPath(); pen.moveTo(64, y(value)); pen.lineTo(width - 8, y(value)); pen.stroke(); pen.globalAlpha = 1;
    pen.fillText(written(value), 58, y(value) + 4);
  }
  pen.textAlign = "center";
  for (const step of ticks(first, last, Math.max(2, width / 110)).filter(Number.isInteger)) pen.fillText(step.toLocaleString("en"), Math.min(x(step), width - 24), height - 4);
  for (const [number, run] of runs.entries()) {
    pen.strokeStyle = pen.fillStyle = run.color;
    if (column !== "loss" && Number.isFinite(run.expected[column])) {
      pen.setLineDash([5, 4]); pen.beginPath();
      pen.moveTo(64, y(run.expected[column])); pen.lineTo(width - 8, y(run.expected[column])); pen.stroke(); pen.setLineDash([]);
    }
    pen.lineWidth = 1.5; pen.beginPath();
    points[number].forEach((row, i) => pen[i ? "lineTo" : "moveTo"](x(row.step), y(row[column])));
    pen.stroke(); pen.lineWidth = 1;
    if (column === "loss") {
      for (const row of run.rows.filter((each) => Number.isFinite(each.validation_loss))) {
        pen.beginPath(); pen.arc(x(row.step), y(row.validation_loss), 3, 0, 7); pen.fill();
      }
    }
  }
  canvas.dataset.points = String(points.reduce((sum, each) => sum + each.length, 0));
  if (canvas.at !== undefined) readout(canvas, column, points, x, y, written, pen, height);
}

// Round numbers between two others, about as many as are wanted.
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? power;
  const from = Math.ceil(low / step), found = [];
  for (let i = from; i * step <= high && found.length < 50; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

// How the numbers of a curve are written.
function writer(column) {
  if (column === "mfu" || column === "bubble") return (value) => `${digits(100 * value)} %`;
  if (column === "tokens_per_second") return (value) => new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 }).format(value);
  return (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

// What the curves say at the step that the pointer, or the arrow keys, are at.
function readout(canvas, column, points, x, y, written, pen, height) {
  const nearest = (rows) => rows.reduce((best, row) => (Math.abs(x(row.step) - canvas.at) < Math.abs(x(best.step) - canvas.at) ? row : best), rows[0]);
  const found = points.map((rows, number) => ({ run: runs[number], row: rows.length ? nearest(rows) : null })).filter((each) => each.row);
  if (!found.length) return;
  pen.strokeStyle = paint("--soft");
  const at = x(found[0].row.step);
  pen.beginPath(); pen.moveTo(at, 6); pen.lineTo(at, height - 20); pen.stroke();
  for (const { run, row } of found) { pen.fillStyle = run.color; pen.beginPath(); pen.arc(x(row.step), y(row[column]), 4, 0, 7); pen.fill(); }
  canvas.nextElementSibling.textContent = found.map(({ run, row }) => `${run.name}, step ${row.step.toLocaleString("en")}: ${written(row[column])}`).join("; ");
}

for (const canvas of document.querySelectorAll("canvas.live")) {
  canvas.after(Object.assign(document.createElement("p"), { className: "status", role: "status" }));
  const move = (at) => { canvas.at = at; if (at === undefined) canvas.nextElementSibling.textContent = ""; redraw(); };
  canvas.addEventListener("pointermove", (event) => move(event.offsetX));
  canvas.addEventListener("pointerleave", () => move(undefined));
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) { event.preventDefault(); move(Math.min(canvas.clientWidth - 8, Math.max(64, (canvas.at ?? canvas.clientWidth) + 8 * by))); }
    if (event.key === "Escape") move(undefined);
  });
}

// The newest lines of all runs, as they were written: steps, evaluations, and how evenly experts are used.
const LINES = 100;
const SAID = {
  loss: "loss #", validation_loss: "validation loss #", seconds: "# s", tokens_per_second: "# tokens/s", mfu: "MFU #",
  memory_gib: "# GiB", gradient_norm: "gradient norm #", expert_balance: "most used expert # times the mean",
};

function log() {
  const said = (row) => Object.entries(SAID).filter(([name]) => Number.isFinite(row[name])).map(([name, words]) => words.replace("#", writer(name)(row[name])));
  const line = (run, row) => [...(runs.length > 1 ? [run.name] : []), `step ${row.step}`, ...said(row)].join("  ");
  const newest = runs.flatMap((run) => run.rows.slice(-LINES).map((row) => line(run, row)).reverse());
  document.getElementById("log").textContent = newest.join("\n");
}

function add(run, rows) {
  run.rows.push(...rows);
  if (run.rows.length > MOST) run.rows = run.rows.filter((_, i) => i % 2 === 0 || i > run.rows.length - 500);
}

const events = new EventSource(`/events?token=${encodeURIComponent(token)}`);
const on = (kind, work) => events.addEventListener(kind, (event) => { work(JSON.parse(event.data)); redraw(); });
on("begin", ({ run, rows, alarms: found }) => {
  runs[run].rows = [];
  add(runs[run], rows);
  for (let i = alarms.length - 1; i >= 0; i--) if (alarms[i].run === run) alarms.splice(i, 1);
  alarms.push(...found.map((each) => ({ run, ...each })));
  document.documentElement.dataset.begun = "yes";
});
on("rows", ({ run, rows, alarms: found }) => {
  add(runs[run], rows);
  alarms.push(...found.map((each) => ({ run, ...each })));
});
on("signs", ({ run, alarms: found }) => { runs[run].signs = found; });
on("state", ({ run, ...state }) => { runs[run].state = state; });
events.onopen = () => { document.getElementById("busy").textContent = "live"; };
events.onerror = () => { document.getElementById("busy").textContent = "the server does not answer; trying again"; };
window.addEventListener("resize", redraw);
