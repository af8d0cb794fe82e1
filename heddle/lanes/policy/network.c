// The graph network of network.py: items and productions pass messages, then every production gets a score.
// A hidden state is one vector of the language, which becomes as many registers as the machine at hand needs.
#include <stdint.h>

enum { HIDDEN = 32, ITEM = 11, PRODUCTION = 24, EXCESS = 21, ROUNDS = 4 };

typedef float Row __attribute__((vector_size(4 * HIDDEN), aligned(4)));
typedef int32_t Whole __attribute__((vector_size(4 * HIDDEN), aligned(4)));
typedef const Row *Matrix;
typedef struct { Row gate, fresh; } Both;

typedef struct {  // as in scores.py
  int64_t items, productions, edges;
  const float *item, *production;                   // features
  const int64_t *gives, *need_of, *need_item;       // item of each production; edges from productions to items
  const float *made_by, *read_by, *asks;            // how many terms their sums have
  Matrix item_in, production_in, production_self, production_gives, production_needs, production_bias;
  Matrix item_self, item_makers, item_readers, item_bias, score_hidden, score_bias;
  const float *score_out, *score_price;
  Row *h, *g, *sums, *more;                         // states of items and of productions; room for sums
  Both *given;
  float *score;
} Network;

#define INLINE static inline __attribute__((always_inline))

// To seven digits: 2ⁿ times a polynomial on either side of zero.
INLINE Row exponential(Row x) {
  x = __builtin_elementwise_max(__builtin_elementwise_min(x, (Row){} + 87.0f), (Row){} - 87.0f);
  Row n = x * 1.44269504f + 12582912.0f;  // rounds, since larger numbers have no digits behind the point
  Whole power = (Whole)n << 23;
  n -= 12582912.0f;
  x = x - n * 0.693359375f + n * 2.12194440e-4f;
  Row p = ((((1.9875691500e-4f * x + 1.3981999507e-3f) * x + 8.3334519073e-3f) * x + 4.1665795894e-2f) * x
           + 1.6666665459e-1f) * x + 5.0000001201e-1f;
  p = p * x * x + x + 1.0f;
  return (Row)((Whole)p + power);
}

INLINE Row hyperbolic(Row x) { return 1.0f - 2.0f / (exponential(x + x) + 1.0f); }

INLINE void times(const float *x, Matrix m, int rows, Row *total) {
  for (int k = 0; k < rows; k++) *total += x[k] * m[k];
}

INLINE void times_both(const Row *row, Matrix m, Both *total) {
  const float *x = (const float *)row;
  for (int k = 0; k < HIDDEN; k++) {
    total->gate += x[k] * m[2 * k];
    total->fresh += x[k] * m[2 * k + 1];
  }
}

// Some of the old, some of the new.
INLINE Row gated(Row old, Both both) {
  Row gate = 1.0f / (exponential(-both.gate) + 1.0f);
  return old * (1.0f - gate) + hyperbolic(both.fresh) * gate;
}

static void clear(Row *rows, int64_t count) {
  for (int64_t k = 0; k < count; k++) rows[k] = (Row){};
}

void scores(const Network *f) {
  Row *h = f->h, *g = f->g, *sums = f->sums, *more = f->more;
  for (int64_t i = 0; i < f->items; i++) {
    Row x = {};
    times(f->item + i * ITEM, f->item_in, ITEM, &x);
    h[i] = hyperbolic(x);
  }
  for (int64_t n = 0; n < f->productions; n++) {
    Row x = {};
    times(f->production + n * PRODUCTION, f->production_in, PRODUCTION, &x);
    g[n] = hyperbolic(x);
  }
  for (int round = 0; round < ROUNDS; round++) {
    clear(sums, f->productions);
    for (int64_t e = 0; e < f->edges; e++) sums[f->need_of[e]] += h[f->need_item[e]];
    for (int64_t i = 0; i < f->items; i++) {
      f->given[i] = (Both){};
      times_both(&h[i], f->production_gives, &f->given[i]);
    }
    for (int64_t n = 0; n < f->productions; n++) {
      Both both = {f->production_bias[0], f->production_bias[1]}, *given = &f->given[f->gives[n]];
      both.gate += given->gate, both.fresh += given->fresh;
      times_both(&g[n], f->production_self, &both);
      sums[n] /= f->asks[n];
      times_both(&sums[n], f->production_needs, &both);
      g[n] = gated(g[n], both);
    }
    clear(sums, f->items);
    clear(more, f->items);
    for (int64_t n = 0; n < f->productions; n++) sums[f->gives[n]] += g[n];
    for (int64_t e = 0; e < f->edges; e++) more[f->need_item[e]] += g[f->need_of[e]];
    for (int64_t i = 0; i < f->items; i++) {
      Both both = {f->item_bias[0], f->item_bias[1]};
      sums[i] /= f->made_by[i], more[i] /= f->read_by[i];
      times_both(&h[i], f->item_self, &both);
      times_both(&sums[i], f->item_makers, &both);
      times_both(&more[i], f->item_readers, &both);
      h[i] = gated(h[i], both);
    }
  }
  for (int64_t n = 0; n < f->productions; n++) {
    const float *features = f->production + n * PRODUCTION;
    Row x = *f->score_bias, zero = {};
    times((const float *)&g[n], f->score_hidden, HIDDEN, &x);
    times((const float *)&h[f->gives[n]], f->score_hidden + HIDDEN, HIDDEN, &x);
    times(features, f->score_hidden + 2 * HIDDEN, PRODUCTION, &x);
    x = __builtin_elementwise_max(x, zero);
    float total = features[EXCESS] * *f->score_price;
    for (int k = 0; k < HIDDEN; k++) total += x[k] * f->score_out[k];
    f->score[n] = total;
  }
}
