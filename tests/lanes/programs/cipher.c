// Integers: rotations, xors, tables, byte order, carries, bits.
#include "hash.h"

#define ROL(x, n) (((x) << (n)) | ((x) >> (32 - (n))))

KERNEL void sha256_rounds(uint32_t *R h, const uint32_t *R w, const uint32_t *R k) {
  uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], i = h[7];
  for (int t = 0; t < 8; t++) {
    uint32_t s1 = ROL(e, 26) ^ ROL(e, 21) ^ ROL(e, 7), ch = (e & f) ^ (~e & g), t1 = i + s1 + ch + k[t] + w[t];
    uint32_t s0 = ROL(a, 30) ^ ROL(a, 19) ^ ROL(a, 10), maj = (a & b) ^ (a & c) ^ (b & c), t2 = s0 + maj;
    i = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e, h[5] += f, h[6] += g, h[7] += i;
}

KERNEL void sha256_schedule(uint32_t *w) {
  for (int t = 16; t < 24; t++) {
    uint32_t x = w[t - 15], y = w[t - 2];
    w[t] = w[t - 16] + (ROL(x, 25) ^ ROL(x, 14) ^ (x >> 3)) + w[t - 7] + (ROL(y, 15) ^ ROL(y, 13) ^ (y >> 10));
  }
}

KERNEL void mix_columns(uint8_t *s) {
  for (int c = 0; c < 4; c++) {
    uint8_t a0 = s[4 * c], a1 = s[4 * c + 1], a2 = s[4 * c + 2], a3 = s[4 * c + 3], all = a0 ^ a1 ^ a2 ^ a3;
#define XTIME(x) (uint8_t)(((x) << 1) ^ ((((x) >> 7) & 1) * 0x1b))
    s[4 * c] ^= all ^ XTIME(a0 ^ a1);
    s[4 * c + 1] ^= all ^ XTIME(a1 ^ a2);
    s[4 * c + 2] ^= all ^ XTIME(a2 ^ a3);
    s[4 * c + 3] ^= all ^ XTIME(a3 ^ a0);
  }
}

KERNEL void add_round_key(uint8_t *R s, const uint8_t *R k) {
  for (int i = 0; i < 16; i++) s[i] ^= k[i];
}

static const uint8_t box[16] = {12, 5, 6, 11, 9, 0, 10, 13, 3, 14, 15, 8, 4, 7, 1, 2};

KERNEL void substitute(uint8_t *R s) {
  for (int i = 0; i < 8; i++) s[i] = (uint8_t)(box[s[i] & 15] | box[s[i] >> 4] << 4);
}

KERNEL void siphash_round(uint64_t *v) {
  v[0] += v[1], v[2] += v[3];
  v[1] = v[1] << 13 | v[1] >> 51, v[3] = v[3] << 16 | v[3] >> 48;
  v[1] ^= v[0], v[3] ^= v[2];
  v[0] = v[0] << 32 | v[0] >> 32;
  v[2] += v[1], v[0] += v[3];
  v[1] = v[1] << 17 | v[1] >> 47, v[3] = v[3] << 21 | v[3] >> 43;
  v[1] ^= v[2], v[3] ^= v[0];
  v[2] = v[2] << 32 | v[2] >> 32;
}

KERNEL void swap_bytes(uint32_t *R o, const uint32_t *R x) {
  for (int k = 0; k < 4; k++) o[k] = x[k] >> 24 | (x[k] >> 8 & 0xff00) | (x[k] << 8 & 0xff0000) | x[k] << 24;
}

KERNEL void add_128(uint64_t *o, const uint64_t *a, const uint64_t *b) {
  uint64_t low = a[0] + b[0];
  o[1] = a[1] + b[1] + (low < a[0]);
  o[0] = low;
}

KERNEL uint64_t bits(const uint64_t *R x) {
  uint64_t n = 0;
  for (int k = 0; k < 4; k++) n += (uint64_t)__builtin_popcountll(x[k]);
  return n * 256 + (uint64_t)__builtin_clzll(x[0] | 1) + (uint64_t)__builtin_ctzll(x[1] | 1ull << 63);
}

KERNEL void shifts(int32_t *R o, const int32_t *R x, const int32_t *R n) {
  for (int k = 0; k < 4; k++) o[k] = (int32_t)((uint32_t)x[k] << (n[k] & 31)) + (x[k] >> (n[k] & 7));
}

KERNEL void divide(int32_t *R o, const int32_t *R x, const int32_t *R d) {
  for (int k = 0; k < 4; k++) o[k] = d[k] ? x[k] / 7 + (int32_t)((int64_t)x[k] % d[k]) : x[k] % 16;
}

KERNEL uint32_t crc(const uint8_t *R p, int n) {
  uint32_t c = ~0u;
  for (int i = 0; i < n; i++) {
    c ^= p[i];
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
  }
  return c;
}

uint64_t run(void) {
  static uint32_t h[8], w[64], k[64];
  static uint8_t s[16], key[16];
  static uint64_t v[8], o[8];
  for (int round = 0; round < 60; round++) {
    fill_bytes(h, 32), fill_bytes(w, 256), fill_bytes(k, 256), fill_bytes(s, 16), fill_bytes(key, 16), fill_bytes(v, 64);
    sha256_schedule(w), sha256_rounds(h, w + 8, k), mix_bytes(h, 32), mix_bytes(w, 256);
    add_round_key(s, key), mix_columns(s), mix_bytes(s, 16), substitute(s), mix_bytes(s, 16);
    siphash_round(v), siphash_round(v + 3), mix_bytes(v, 64);
    swap_bytes(w, k), mix_bytes(w, 16);
    add_128(o, v, v + 2), add_128(v + 1, v, v + 1), mix_bytes(o, 16), mix_bytes(v, 32);
    mix(bits(v)), mix(crc(s, 16));
    shifts((int32_t *)w, (int32_t *)k, (int32_t *)h), divide((int32_t *)w + 4, (int32_t *)k, (int32_t *)h), mix_bytes(w, 32);
  }
  return hash;
}
