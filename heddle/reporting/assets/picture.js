// The picture of a timeline: every span of every rank on one canvas. It looks only at those of the time and the rows that
// are seen.

const AXIS = 22, GUTTER = 66;
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Picture {
  constructor(root, data, kinds, colors, linked) {
    this.root = root;
    this.sets = Object.fromEntries(Object.entries(data).map(([name, packed]) => [name, unpack(packed)]));
    this.kinds = kinds;
    this.colors = colors.map(rgb);
    // every other chunk of a rank in a lighter shade, so that interleaved ones are told apart
    this.lighter = this.colors.map((c) => c.map((v) => Math.round(v + 0.35 * (255 - v))));
    this.linked = linked; // the timelines of a page show the same stretch of time
    linked.push(this);
    this.canvas = root.querySelector("canvas");
    this.scroll = root.querySelector(".scroll");
    this.scratch = document.createElement("canvas");
    this.selected = null; // {set, index, row}
    this.duration = Math.max(...Object.values(this.sets).map((set) => set.duration));
    this.view = [0, this.duration];
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

  // One strip as a line of pixels: each pixel mixes the colors of the spans that cover it, by how much they do. So a
  // thousand spans in a hundred pixels are drawn as truly, and as quickly, as ten.
  paintStrip(set, strip, pixels, at, width) {
    const sums = this.sums.fill(0, 0, 4 * width);
    const scale = width / (this.view[1] - this.view[0]);
    const [low, high] = this.range(set, strip);
    for (let i = low; i < high; i++) {
      const color = (set.chunk[i] / set.ranks & 1 ? this.lighter : this.colors)[set.kind[i]];
      let x0 = (set.start[i] - this.view[0]) * scale, x1 = x0 + set.length[i] * scale;
      if (x1 <= 0) continue;
      if (x1 - x0 > 4) x0 += this.ratio; // a gap tells neighbors apart
      x0 = Math.max(x0, 0); x1 = Math.min(x1, width);
      for (let x = Math.floor(x0); x < x1; x++) {
        const cover = Math.min(x + 1, x1) - Math.max(x, x0), k = 4 * x;
        sums[k] += cover * color[0]; sums[k + 1] += cover * color[1]; sums[k + 2] += cover * color[2];
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
}
