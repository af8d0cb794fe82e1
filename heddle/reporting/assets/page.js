// Brings the page to life: timelines, curves, and the plans that can be copied.

const data = JSON.parse(document.getElementById("data").textContent);
const linked = [];
for (const root of document.querySelectorAll("[data-timeline]")) {
  new Timeline(root, data.timelines[root.dataset.timeline], data.kinds, data.colors, linked);
}
linked[0]?.look(0, linked[0].whole);
const curves = [...document.querySelectorAll(".curve")].map((canvas) => new Curve(canvas, data.learning[canvas.dataset.run]));

const resizeAll = () => [...linked, ...curves].forEach((each) => each.resize());
window.addEventListener("resize", resizeAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", resizeAll);

// Pages from a file may not always write to the clipboard by themselves; selecting and copying works everywhere.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

for (const button of document.querySelectorAll("[data-plan]")) {
  const status = button.closest(".subject").querySelector(".front ~ .status");
  const words = button.classList.contains("point") ? button.getAttribute("aria-label").replace("; copy its TOML", "") : "";
  const show = () => { if (words) status.textContent = words; };
  button.addEventListener("pointerenter", show);
  button.addEventListener("focus", show);
  button.addEventListener("click", async () => {
    await copy(data.plans[button.dataset.run][button.dataset.plan]);
    status.textContent = `Copied the [plan] to the clipboard${words ? ": " + words : "."}`;
    if (!words) { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); }
  });
}

// One stop of the Tab key for all points; arrows go from one to the next.
for (const area of document.querySelectorAll(".area")) {
  const points = [...area.querySelectorAll(".point")];
  area.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: 1, ArrowDown: 1, ArrowRight: -1, ArrowUp: -1 }[event.key]; // the fastest, with most memory, first
    const at = points.indexOf(document.activeElement);
    if (!by || at < 0) return;
    points[at].tabIndex = -1;
    const next = points[Math.min(Math.max(at + by, 0), points.length - 1)];
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  });
}
document.documentElement.dataset.ready = "yes";
