// The timeline: every span of every rank on one canvas. Spans lie in typed arrays, ordered by rank, strip (its work, and
// what goes on beside it) and start; a picture looks only at those of the time and the rows that are seen.

const TYPES = { f8: Float64Array, f4: Float32Array, u1: Uint8Array, u2: Uint16Array, i2: Int16Array, i4: Int32Array };
const STRIPS = 2, AXIS = 22, GUTTER = 66;
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function unpack(packed) {
  const set = { ...packed };
  for (const [name, column] of Object.entries(packed.columns)) {
    const bytes = Uint8Array.from(atob(column.data), (character) => character.charCodeAt(0));
    set[name] = new TYPES[column.type](bytes.buffer);
  }
  // the longest span of each strip: how far back a span may begin that is still seen
  set.longest = packed.offsets.slice(1).map((end, strip) => {
    let most = 0;
    for (let i = packed.offsets[strip]; i < end; i++) most = Math.max(most, set.length[i]);
    return most;
  });
  set.beside = set.longest.some((most, strip) => strip % STRIPS && most > 0);
  return set;
}

// The first index of [from, to) whose start is not before t.
function firstFrom(starts, t, from, to) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (starts[middle] < t) from = middle + 1; else to = middle;
  }
  return from;
}

function formatSeconds(value, step = value) {
  const size = Math.abs(step) || Math.abs(value);
  const [unit, scale] = size >= 1 ? ["s", 1] : size >= 1e-3 ? ["ms", 1e3] : ["µs", 1e6];
  const digits = step === value ? 3 : Math.max(0, Math.ceil(-Math.log10(step * scale) - 1e-9));
  return `${(value * scale).toFixed(Math.min(digits, 6)).replace(step === value ? /\.?0+$/ : /^$/, "")} ${unit}`;
}

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((size) => size * power >= rough);
}

class Timeline {
  constructor(root, data, kinds, colours, linked) {
    this.root = root;
    this.sets = Object.fromEntries(Object.entries(data).map(([name, packed]) => [name, unpack(packed)]));
    this.kinds = kinds;
    this.colours = colours.map(rgb);
    // every other chunk of a rank in a lighter shade, so that interleaved ones are told apart
    this.lighter = this.colours.map((c) => c.map((v) => Math.round(v + 0.35 * (255 - v))));
    this.linked = linked; // the timelines of a page show the same stretch of time
    linked.push(this);
    this.canvas = root.querySelector("canvas");
    this.scroll = root.querySelector(".scroll");
    this.status = root.querySelector(".status");
    this.scratch = document.createElement("canvas");
    this.selected = null; // {set, index, row}
    this.duration = Math.max(...Object.values(this.sets).map((set) => set.duration));
    this.view = [0, this.duration];
    this.listen();
    this.setMode(root.querySelector("input:checked").value);
  }

  get whole() { return Math.max(...this.linked.map((each) => each.duration)); }

  // A row has one track, or two where predicted lies over measured.
  setMode(mode) {
    const { predicted, measured } = this.sets;
    this.mode = mode;
    this.rows = (mode === "predicted" ? predicted : measured ?? predicted).rows.map((row, rank) => ({
      ...row,
      tracks: [
        ...(mode !== "measured" && predicted ? [{ name: "predicted", set: predicted, rank: row.stage }] : []),
        ...(mode !== "predicted" && measured ? [{ name: "measured", set: measured, rank }] : []),
      ],
    }));
    this.selected = null;
    const few = this.rows.length <= 12;
    let y = 0;
    for (const row of this.rows) {
      row.y = y;
      for (const track of row.tracks) {
        track.y = y;
        track.height = few ? 22 : 13;
        track.beside = track.set.beside ? (few ? 8 : 5) : 0;
        y += track.height + track.beside + 1;
      }
      row.height = y - row.y;
      y += few ? 6 : 3;
    }
    this.height = y;
    this.root.dataset.mode = mode;
    this.resize();
  }

  resize() {
    this.width = this.scroll.clientWidth;
    const seen = Math.min(this.height + AXIS, 558);
    const ratio = window.devicePixelRatio || 1;
    this.scroll.firstElementChild.style.height = `${this.height + AXIS}px`;
    this.width = this.scroll.clientWidth; // a scroll bar may have come or gone
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(seen * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${seen}px`;
    this.seen = seen;
    this.ratio = ratio;
    this.redraw();
  }

  redraw() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
  }

  look(from, to) {
    const least = this.whole * 1e-7, whole = this.whole;
    const length = Math.min(Math.max(to - from, least), whole * 1.0);
    const start = Math.min(Math.max(from, 0), whole - length);
    for (const each of this.linked) {
      each.view = [start, start + length];
      each.redraw();
    }
  }

  zoom(factor, at = (this.view[0] + this.view[1]) / 2) {
    const [from, to] = this.view;
    this.look(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(share) {
    const by = share * (this.view[1] - this.view[0]);
    this.look(this.view[0] + by, this.view[1] + by);
  }

  get inner() { return this.width - GUTTER; }
  timeAt(x) { return this.view[0] + (x - GUTTER) / this.inner * (this.view[1] - this.view[0]); }
  xAt(t) { return GUTTER + (t - this.view[0]) / (this.view[1] - this.view[0]) * this.inner; }

  // Indices of the spans of a strip that are seen.
  range(set, strip) {
    const from = set.offsets[strip], to = set.offsets[strip + 1];
    return [
      firstFrom(set.start, this.view[0] - set.longest[strip], from, to),
      firstFrom(set.start, this.view[1], from, to),
    ];
  }

  // One strip as a line of pixels: each pixel mixes the colours of the spans that cover it, by how much they do. So a
  // thousand spans in a hundred pixels are drawn as truly, and as quickly, as ten.
  paintStrip(set, strip, pixels, at, width) {
    const sums = this.sums.fill(0, 0, 4 * width);
    const scale = width / (this.view[1] - this.view[0]);
    const [low, high] = this.range(set, strip);
    for (let i = low; i < high; i++) {
      const colour = (set.chunk[i] / set.ranks & 1 ? this.lighter : this.colours)[set.kind[i]];
      let x0 = (set.start[i] - this.view[0]) * scale, x1 = x0 + set.length[i] * scale;
      if (x1 <= 0) continue;
      if (x1 - x0 > 4) x0 += this.ratio; // a gap tells neighbours apart
      x0 = Math.max(x0, 0); x1 = Math.min(x1, width);
      for (let x = Math.floor(x0); x < x1; x++) {
        const cover = Math.min(x + 1, x1) - Math.max(x, x0), k = 4 * x;
        sums[k] += cover * colour[0]; sums[k + 1] += cover * colour[1]; sums[k + 2] += cover * colour[2];
        sums[k + 3] += cover;
      }
    }
    for (let k = 0; k < 4 * width; k += 4) {
      const cover = sums[k + 3];
      if (cover <= 0) continue;
      pixels[at + k] = sums[k] / cover; pixels[at + k + 1] = sums[k + 1] / cover; pixels[at + k + 2] = sums[k + 2] / cover;
      pixels[at + k + 3] = 255 * Math.min(1, cover);
    }
  }

  draw() {
    const context = this.canvas.getContext("2d"), top = this.scroll.scrollTop;
    const width = Math.max(1, Math.round(this.inner * this.ratio));
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = paint("--panel");
    context.fillRect(0, 0, this.width, this.seen);
    const rows = this.rows.filter((row) => row.y + row.height >= top && row.y < top + this.seen);
    const strips = rows.flatMap((row) => row.tracks.flatMap((track) => [
      { ...track, strip: track.rank * STRIPS, top: track.y, tall: track.height },
      ...(track.beside ? [{ ...track, strip: track.rank * STRIPS + 1, top: track.y + track.height, tall: track.beside }] : []),
    ]));
    if (!this.sums || this.sums.length < 4 * width) this.sums = new Float32Array(4 * width);
    const image = new ImageData(width, Math.max(1, strips.length));
    strips.forEach((each, line) => this.paintStrip(each.set, each.strip, image.data, 4 * width * line, width));
    this.scratch.width = width;
    this.scratch.height = image.height;
    this.scratch.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.fillStyle = paint("--idle");
    for (const each of strips) context.fillRect(GUTTER, AXIS + each.top - top, this.inner, each.tall);
    strips.forEach((each, line) =>
      context.drawImage(this.scratch, 0, line, width, 1, GUTTER, AXIS + each.top - top, this.inner, each.tall));
    this.drawNumbers(context, strips, top);
    this.drawNames(context, rows, top);
    this.drawAxis(context);
    this.outline(context, top);
  }

  // Microbatch numbers, where spans are wide enough for them.
  drawNumbers(context, strips, top) {
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = "#fff";
    for (const each of strips) {
      if (each.tall < 12) continue;
      const [low, high] = this.range(each.set, each.strip);
      if (high - low > this.inner / 8) continue; // too many to be wide
      for (let i = low; i < high; i++) {
        const x0 = Math.max(GUTTER, this.xAt(each.set.start[i]));
        const x1 = Math.min(this.width, this.xAt(each.set.start[i] + each.set.length[i]));
        const number = each.set.microbatch[i];
        if (number >= 0 && x1 - x0 > 8 + 7 * String(number).length) {
          context.fillText(number, (x0 + x1) / 2, AXIS + each.top - top + each.tall / 2 + 0.5);
        }
      }
    }
  }

  drawNames(context, rows, top) {
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = paint("--text");
    for (const row of rows) {
      const both = row.tracks.length > 1 && row.height > 50;
      context.font = "12px system-ui, sans-serif";
      context.fillStyle = paint("--text");
      context.fillText(row.label, 4, AXIS + row.y - top + row.height / 2);
      if (!both) continue;
      context.font = "10px system-ui, sans-serif";
      context.fillStyle = paint("--soft");
      for (const track of row.tracks) {
        const above = track === row.tracks[0];
        context.fillText(track.name, 4, AXIS - top + (above ? row.y + 8 : row.y + row.height - 8));
      }
    }
  }

  drawAxis(context) {
    context.fillStyle = paint("--panel");
    context.fillRect(0, 0, this.width, AXIS);
    context.fillStyle = paint("--soft");
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const step = roundStep((this.view[1] - this.view[0]) / Math.max(2, this.inner / 110));
    for (let n = Math.ceil(this.view[0] / step); n * step <= this.view[1]; n++) {
      const x = this.xAt(n * step), label = formatSeconds(n * step, step);
      context.fillRect(x, AXIS - 5, 1, 5);
      context.textAlign = x + context.measureText(label).width / 2 > this.width ? "right" : x < GUTTER + 20 ? "left" : "center";
      context.fillText(label, x, AXIS / 2 - 1);
    }
  }

  outline(context, top) {
    if (!this.selected) return;
    const { set, index, y, tall } = this.selected;
    const x0 = this.xAt(set.start[index]), x1 = this.xAt(set.start[index] + set.length[index]);
    if (x1 < GUTTER || y - top < 0) return;
    context.strokeStyle = paint("--text");
    context.lineWidth = 2;
    const left = Math.max(x0, GUTTER);
    context.strokeRect(left, AXIS + y - top, Math.max(2, x1 - left), tall);
  }

  // The span under a point of the canvas: the last that began before, of those that are not over yet.
  spanAt(x, y) {
    const below = y - AXIS + this.scroll.scrollTop, t = this.timeAt(x);
    if (x < GUTTER || y < AXIS) return null;
    const row = this.rows.find((each) => below >= each.y && below < each.y + each.height);
    const track = row?.tracks.find((each) => below >= each.y && below <= each.y + each.height + each.beside);
    if (!track) return null;
    const lower = below > track.y + track.height;
    const set = track.set, strip = track.rank * STRIPS + (lower ? 1 : 0);
    const from = set.offsets[strip];
    const slack = (this.view[1] - this.view[0]) / this.inner; // a pixel: short spans can be hit, too
    for (let i = firstFrom(set.start, t + slack, from, set.offsets[strip + 1]) - 1; i >= from; i--) {
      if (set.start[i] + set.length[i] + slack >= t) return this.found(row, track, lower, i);
      if (set.start[i] < t - set.longest[strip]) break;
    }
    return null;
  }

  found(row, track, lower, index) {
    return {
      row, track, lower, index, set: track.set,
      y: lower ? track.y + track.height : track.y, tall: lower ? track.beside : track.height,
    };
  }

  select(span) {
    this.selected = span;
    if (span) this.status.textContent = this.describe(span);
    this.redraw();
  }

  describe({ row, track, set, index }) {
    const of = [];
    if (set.microbatch[index] >= 0) of.push(`microbatch ${set.microbatch[index]}`);
    if (set.chunk[index] >= 0) of.push(`chunk ${set.chunk[index]}`);
    const about = row.about && track.name === "measured" ? ` (${row.about})` : "";
    const who = track.name === "measured" ? `${row.label}${about}` : `stage ${row.stage}`;
    const bytes = set.bytes?.[index] ? `, ${(set.bytes[index] / 2 ** 20).toPrecision(3)} MiB` : "";
    const start = set.start[index], length = set.length[index];
    return `${who}, ${track.name}: ${set.names[set.name[index]]}${of.length ? " of " + of.join(", ") : ""}, ` +
      `${formatSeconds(length)} from ${formatSeconds(start)} on${bytes}`;
  }

  // Arrow keys: along a row from span to span, and from row to row.
  step(along, across) {
    let { row, track, lower, index } = this.selected ?? {};
    if (!row) {
      row = this.rows[0]; track = row.tracks[0]; lower = false;
      index = this.range(track.set, track.rank * STRIPS)[0];
    } else if (across) {
      const tracks = this.rows.flatMap((each) => each.tracks.map((of) => ({ row: each, track: of })));
      const at = tracks.findIndex((each) => each.track === track);
      const t = track.set.start[index];
      ({ row, track } = tracks[Math.min(Math.max(at + across, 0), tracks.length - 1)]);
      lower = false;
      const strip = track.rank * STRIPS;
      index = Math.max(track.set.offsets[strip], firstFrom(track.set.start, t + 1e-12, track.set.offsets[strip], track.set.offsets[strip + 1]) - 1);
    } else {
      const strip = track.rank * STRIPS + (lower ? 1 : 0);
      index = Math.min(Math.max(index + along, track.set.offsets[strip]), track.set.offsets[strip + 1] - 1);
    }
    const start = track.set.start[index], end = start + track.set.length[index], length = this.view[1] - this.view[0];
    if (start < this.view[0] || end > this.view[1]) this.look(start - length / 3, start - length / 3 + length);
    if (row.y < this.scroll.scrollTop || row.y + row.height > this.scroll.scrollTop + this.seen - AXIS) {
      this.scroll.scrollTop = row.y - this.seen / 2;
    }
    this.select(this.found(row, track, lower, index));
  }

  save() {
    const link = document.createElement("a");
    this.canvas.toBlob((blob) => {
      link.href = URL.createObjectURL(blob);
      link.download = "timeline.png";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  listen() {
    const actions = {
      in: () => this.zoom(0.5), out: () => this.zoom(2), left: () => this.pan(-0.4), right: () => this.pan(0.4),
      whole: () => this.look(0, this.whole), save: () => this.save(),
    };
    for (const button of this.root.querySelectorAll("[data-do]")) {
      button.addEventListener("click", actions[button.dataset.do]);
    }
    for (const input of this.root.querySelectorAll("input")) {
      input.addEventListener("change", () => this.setMode(input.value));
    }
    const keys = {
      "+": actions.in, "=": actions.in, "-": actions.out, Home: actions.whole, 0: actions.whole,
      ArrowLeft: (shift) => shift ? actions.left() : this.step(-1, 0),
      ArrowRight: (shift) => shift ? actions.right() : this.step(1, 0),
      ArrowUp: () => this.step(0, -1), ArrowDown: () => this.step(0, 1),
    };
    this.canvas.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      keys[event.key](event.shiftKey);
      event.preventDefault();
    });
    this.canvas.addEventListener("wheel", (event) => {
      const rect = this.canvas.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(event.deltaY * 0.002), this.timeAt(event.clientX - rect.left));
      else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX || event.deltaY) / this.inner);
      else return; // the page scrolls
      event.preventDefault();
    }, { passive: false });
    this.canvas.addEventListener("dblclick", (event) => this.zoom(0.4, this.timeAt(event.offsetX)));
    this.scroll.addEventListener("scroll", () => this.redraw());
    this.listenToPointers();
  }

  // One finger or the mouse moves the picture, two fingers pinch it; a mouse that only hovers reads spans.
  listenToPointers() {
    const down = new Map();
    this.canvas.addEventListener("pointerdown", (event) => {
      down.set(event.pointerId, event.offsetX);
      this.canvas.setPointerCapture(event.pointerId);
      this.select(this.spanAt(event.offsetX, event.offsetY));
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!down.has(event.pointerId)) return this.select(this.spanAt(event.offsetX, event.offsetY));
      const before = [...down.values()];
      down.set(event.pointerId, event.offsetX);
      const after = [...down.values()];
      if (after.length === 1) return this.pan((before[0] - after[0]) / this.inner);
      const apart = (xs) => Math.max(10, Math.abs(xs[0] - xs[1]));
      return this.zoom(apart(before) / apart(after), this.timeAt((after[0] + after[1]) / 2));
    });
    for (const end of ["pointerup", "pointercancel"]) {
      this.canvas.addEventListener(end, (event) => down.delete(event.pointerId));
    }
  }
}
