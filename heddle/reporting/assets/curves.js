// A curve over steps: loss, tokens/s or MFU. A dashed line is what was predicted; dots are validation losses.

class Curve {
  constructor(canvas, run) {
    const name = canvas.dataset.curve;
    this.canvas = canvas;
    this.status = canvas.parentElement.querySelector(".status");
    this.steps = run.steps;
    this.values = run.curves[name];
    this.dots = name === "loss" ? run.validation : { steps: [], loss: [] };
    this.expected = canvas.dataset.expected ? Number(canvas.dataset.expected) : null;
    this.chosen = null;
    canvas.addEventListener("pointermove", (event) => this.choose(this.nearest(event.offsetX)));
    canvas.addEventListener("pointerleave", () => this.choose(null));
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      this.choose(Math.min(Math.max((this.chosen ?? (by > 0 ? -1 : this.steps.length)) + by, 0), this.steps.length - 1));
      event.preventDefault();
    });
    this.resize();
  }

  // The range of values, without the few that would flatten all others.
  bounds() {
    const known = [...this.values, ...this.dots.loss].filter((value) => value !== null).sort((a, b) => a - b);
    if (!known.length) return [0, 1];
    const low = known[0], high = known[Math.ceil(0.995 * (known.length - 1))];
    const all = this.expected === null ? [low, high] : [Math.min(low, this.expected), Math.max(high, this.expected)];
    const margin = 0.06 * (all[1] - all[0]) || 0.1 * Math.abs(all[1]) || 1;
    return [all[0] - margin, all[1] + margin];
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.ratio = ratio;
    this.draw();
  }

  x(step) {
    const first = this.steps[0], last = Math.max(this.steps.at(-1), this.dots.steps.at(-1) ?? 0);
    return 46 + (last > first ? (step - first) / (last - first) : 0.5) * (this.width - 56);
  }

  nearest(x) {
    let best = 0;
    this.steps.forEach((step, i) => { if (Math.abs(this.x(step) - x) < Math.abs(this.x(this.steps[best]) - x)) best = i; });
    return best;
  }

  choose(index) {
    this.chosen = index;
    this.status.textContent = index === null ? "" : `step ${this.steps[index]}: ${this.values[index] ?? "none"}` +
      (this.expected === null ? "" : `, predicted ${this.expected.toPrecision(4)}`);
    this.draw();
  }

  draw() {
    const context = this.canvas.getContext("2d"), [low, high] = this.bounds(), bottom = this.height - 20;
    const y = (value) => bottom - (value - low) / (high - low) * (bottom - 6);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, sans-serif";
    context.lineWidth = 1;
    const step = roundStep((high - low) / 4);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let n = Math.ceil(low / step); n * step <= high; n++) {
      context.fillStyle = paint("--grid");
      context.fillRect(46, y(n * step), this.width - 50, 1);
      context.fillStyle = paint("--soft");
      const value = n * step;
      context.fillText(Math.abs(value) >= 1e4 ? `${+(value / 1e3).toPrecision(4)}k` : +value.toPrecision(4), 40, y(value));
    }
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    context.fillText(`step ${this.steps[0]}`, 46, this.height - 4);
    context.textAlign = "right";
    if (this.steps.length > 1) context.fillText(this.steps.at(-1), this.width - 8, this.height - 4);
    context.save();
    context.beginPath();
    context.rect(46, 0, this.width - 46, bottom);
    context.clip();
    if (this.expected !== null) {
      context.strokeStyle = "#d55e00";
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(46, y(this.expected));
      context.lineTo(this.width, y(this.expected));
      context.stroke();
      context.setLineDash([]);
    }
    context.strokeStyle = paint("--accent");
    context.lineWidth = 1.5;
    context.beginPath();
    let pen = false; // a step without a value leaves a gap
    this.values.forEach((value, i) => {
      if (value === null) { pen = false; return; }
      if (pen) context.lineTo(this.x(this.steps[i]), y(value)); else context.moveTo(this.x(this.steps[i]), y(value));
      pen = true;
    });
    context.stroke();
    context.fillStyle = "#d55e00";
    this.dots.steps.forEach((at, i) => {
      if (this.dots.loss[i] === null) return;
      context.beginPath();
      context.arc(this.x(at), y(this.dots.loss[i]), 3.5, 0, 7);
      context.fill();
    });
    if (this.chosen !== null && this.values[this.chosen] !== null) {
      context.fillStyle = paint("--text");
      context.beginPath();
      context.arc(this.x(this.steps[this.chosen]), y(this.values[this.chosen]), 4, 0, 7);
      context.fill();
    }
    context.restore();
  }
}
