// Spans in typed arrays, ordered by rank, strip and start, and times as people read them.

const TYPES = { f8: Float64Array, f4: Float32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array };
const STRIPS = 2; // of a rank: its work, and what goes on beside it

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
