// For every wanted vector: the vectors with all of its lanes, pairs of vectors with all of them between them, and
// vectors with most of them in their place. `make.py` in `lanes/search` compiles this into `nearest.ll`, which ships.
#include <stdint.h>

typedef const int32_t *Numbers;

typedef struct {  // as in nearest.py
  int64_t sources, wanted, values;
  Numbers at, lanes;      // of the sources, then of the wanted, one after another; -1: no source holds it
  Numbers type, item;     // likewise
  Numbers low, high;      // of the wanted: their halves among the sources; -1 if there are none
  int32_t *start, *who, *where;  // by value: the sources that hold it, in order, and in which lane first
  int32_t *seen, *touched;      // by value; by source
  int32_t *place;               // by lane and source
  uint64_t *has;                // by source: which lanes of the vector at hand it holds
} Vectors;

enum { FIRST = 8, SECOND = 12, PAIRS = 4, SIZES = 4, WIDEST = 32 };

static int32_t width_of(const Vectors *v, int64_t n) { return v->at[n + 1] - v->at[n]; }

static void hold(const Vectors *v) {
  for (int64_t x = 0; x <= v->values; x++) v->start[x] = 0;
  for (int pass = 0; pass < 2; pass++) {  // counted, then put
    for (int64_t x = 0; x < v->values; x++) v->seen[x] = -1;
    for (int32_t s = 0; s < v->sources; s++)
      for (int32_t k = v->at[s]; k < v->at[s + 1]; k++) {
        int32_t x = v->lanes[k];
        if (v->seen[x] == s) continue;
        v->seen[x] = s;
        int32_t e = v->start[x]++;
        if (pass) v->who[e] = s, v->where[e] = k - v->at[s];
      }
    for (int64_t x = v->values; x > 0; x--) v->start[x] = v->start[x - 1];
    v->start[0] = 0;
    for (int64_t x = 1; !pass && x <= v->values; x++) v->start[x] += v->start[x - 1];
  }
}

// Those with most lanes first, then those with its first lane, and so on.
static int64_t key(const Vectors *v, int32_t s, int32_t width) {
  uint64_t has = v->has[s];
  return ((width - __builtin_popcountll(has)) * 64ll + __builtin_ctzll(has)) << 32 | s;
}

// How many of at most SECOND sources there are of some width that hold some of the lanes, but not all.
static int near(const Vectors *v, int64_t touched, uint64_t full, int32_t width, int32_t size, int32_t *found) {
  int64_t keys[SECOND];
  int count = 0;
  for (int64_t t = 0; t < touched; t++) {
    int32_t s = v->touched[t];
    if (width_of(v, s) != size || v->has[s] == full) continue;
    int64_t own = key(v, s, width);
    int k = count < SECOND ? count++ : SECOND;
    if (k == SECOND && own > keys[--k]) continue;
    for (; k > 0 && keys[k - 1] > own; k--) keys[k] = keys[k - 1];
    keys[k] = own;
  }
  for (int k = 0; k < count; k++) found[k] = (int32_t)keys[k];
  return count;
}

// Where a shuffle of two vectors takes values from: their own lane if it can, else from the first that has them.
static int32_t *mask(const Vectors *v, Numbers lanes, Numbers first, int32_t width, int32_t a, int32_t b, int32_t *out) {
  int32_t size = width_of(v, a);
  for (int32_t k = 0; k < width; k++) {
    int64_t row = first[k] * v->sources;
    if (k < size && v->lanes[v->at[a] + k] == lanes[k]) *out++ = k;
    else if (k < size && v->lanes[v->at[b] + k] == lanes[k]) *out++ = k + size;
    else *out++ = v->has[a] >> first[k] & 1 ? v->place[row + a] : v->place[row + b] + size;
  }
  return out;
}

// Pairs of one width: how wide, which, and the mask.
static int32_t *pairs(const Vectors *v, int64_t n, Numbers first, uint64_t full, Numbers close, int count, int32_t *out) {
  int64_t own = v->sources + n;
  int kept = 0;
  for (int i = 0; i < count && i < FIRST; i++)
    for (int j = i + 1; j < count && kept < PAIRS; j++) {
      int32_t a = close[i], b = close[j];
      if ((v->has[a] | v->has[b]) != full) continue;
      if (a == v->low[n] && b == v->high[n]) continue;  // two halves are put together anyway
      *out++ = width_of(v, a), *out++ = v->item[a], *out++ = v->item[b];
      out = mask(v, v->lanes + v->at[own], first, width_of(v, own), a, b, out);
      kept++;
    }
  return out;
}

// Of those of its width that differ in no more than half of the lanes: in which, as bits.
static int32_t *in_place(const Vectors *v, Numbers lanes, int32_t width, Numbers close, int count, int32_t *out) {
  for (int i = 0; i < count; i++) {
    uint32_t other = 0;
    for (int32_t k = 0; k < width; k++) other |= (uint32_t)(v->lanes[v->at[close[i]] + k] != lanes[k]) << k;
    if (2 * __builtin_popcount(other) > width) continue;
    *out++ = v->item[close[i]], *out++ = (int32_t)other;
  }
  return out;
}

// What was found goes to `out`, vector by vector from the `next` one, while there is room; then which is the next.
// The first number says how many there are.
int64_t nearest(const Vectors *v, int64_t next, int32_t *out, int64_t room) {
  int32_t *begin = out++;
  const int32_t *end = begin + room - (v->sources + SIZES * PAIRS + 4) * (WIDEST + 3);
  hold(v);
  for (; next < v->wanted && out < end; next++) {
    int64_t own = v->sources + next, touched = 0;
    Numbers lanes = v->lanes + v->at[own];
    int32_t width = width_of(v, own), first[WIDEST], close[SECOND];
    uint64_t full = 0;
    for (int32_t k = 0; k < width; k++) {
      for (first[k] = 0; lanes[first[k]] != lanes[k];) first[k]++;
      full |= 1ull << (lanes[k] < 0 ? 63 : first[k]);
      if (lanes[k] < 0 || first[k] < k) continue;
      for (int32_t e = v->start[lanes[k]]; e < v->start[lanes[k] + 1]; e++) {
        int32_t s = v->who[e];
        if (v->type[s] != v->type[own]) continue;
        if (!v->has[s]) v->touched[touched++] = s;
        v->has[s] |= 1ull << k;
        v->place[k * v->sources + s] = v->where[e];
      }
    }
    int32_t *ends = out;  // of what follows: vectors with all lanes, pairs, and those with most in place
    out += 3;
    for (int32_t e = lanes[0] < 0 ? 0 : v->start[lanes[0]]; lanes[0] >= 0 && e < v->start[lanes[0] + 1]; e++) {
      int32_t s = v->who[e];
      if (v->has[s] != full || v->item[s] == v->item[own]) continue;
      *out++ = v->item[s];
      for (int32_t k = 0; k < width; k++) *out++ = v->place[first[k] * v->sources + s];
    }
    ends[0] = (int32_t)(out - begin);
    int32_t same[SECOND], alike = 0;
    for (int32_t size = width / 2, c = 0; c < SIZES; size *= 2, c++) {  // every third byte of 24, say, lies in two of 16
      int count = near(v, touched, full, width, size, close);
      out = pairs(v, next, first, full, close, count, out);
      for (int k = 0; size == width && k < count; k++) same[alike++] = close[k];
    }
    ends[1] = (int32_t)(out - begin);
    if (width > 2) out = in_place(v, lanes, width, same, alike, out);
    ends[2] = (int32_t)(out - begin);
    while (touched) v->has[v->touched[--touched]] = 0;
  }
  *begin = (int32_t)(out - begin);
  return next;
}
