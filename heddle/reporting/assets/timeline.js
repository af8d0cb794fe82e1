// The timeline as a reader uses it: buttons, keys, wheel and fingers move the picture, and spans are read out.

class Timeline extends Picture {
  constructor(...given) {
    super(...given);
    this.status = this.root.querySelector(".status");
    this.listen();
    this.setMode(this.root.querySelector("input:checked").value);
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
