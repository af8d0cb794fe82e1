// What a program gives back: a hash of all that it computed, in which any NaN is the same.
#include <stdint.h>
#include <string.h>

#define R restrict
#define KERNEL __attribute__((noinline))

static uint64_t seed = 88172645463325252ull, hash = 14695981039346656037ull;

static inline uint64_t next(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}

static inline double number(void) {
  static const double edges[] = {0.0, -0.0, 1.0, -1.0, 1e-310, 1e308, -1e308, 1.0 / 0.0, -1.0 / 0.0, 0.5};
  uint64_t x = next();
  return x % 8 == 0 ? edges[(x >> 8) % 10] : ((double)(int64_t)(x >> 12) / (double)(1ull << 50)) - 2.0;
}

static inline void mix(uint64_t x) { hash = (hash ^ x) * 1099511628211ull; }

static inline void mix_f64(const double *x, int n) {
  for (int i = 0; i < n; i++) {
    uint64_t bits;
    memcpy(&bits, x + i, 8);
    mix(x[i] != x[i] ? 1 : bits);
  }
}

static inline void mix_f32(const float *x, int n) {
  for (int i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, x + i, 4);
    mix(x[i] != x[i] ? 1 : bits);
  }
}

static inline void mix_bytes(const void *x, int n) {
  for (int i = 0; i < n; i++) mix(((const uint8_t *)x)[i]);
}

static inline void fill_f32(float *x, int n) {
  for (int i = 0; i < n; i++) x[i] = (float)number();
}

static inline void fill_f64(double *x, int n) {
  for (int i = 0; i < n; i++) x[i] = number();
}

static inline void fill_bytes(void *x, int n) {
  for (int i = 0; i < n; i++) ((uint8_t *)x)[i] = (uint8_t)(next() >> 20);
}
