// Kernels of many fields: transforms, ciphers, physics, loops. None of them was learned from.
#include <stdint.h>
#define R restrict

void fft5_f32(float *R o, const float *R x) {
  float ar = x[2] + x[8], ai = x[3] + x[9], br = x[4] + x[6], bi = x[5] + x[7];
  float cr = x[2] - x[8], ci = x[3] - x[9], dr = x[4] - x[6], di = x[5] - x[7];
  o[0] = x[0] + ar + br;
  o[1] = x[1] + ai + bi;
  float pr = x[0] + 0.309017f * ar - 0.809017f * br, pi = x[1] + 0.309017f * ai - 0.809017f * bi;
  float qr = 0.951057f * cr + 0.587785f * dr, qi = 0.951057f * ci + 0.587785f * di;
  o[2] = pr + qi;
  o[3] = pi - qr;
  o[8] = pr - qi;
  o[9] = pi + qr;
  float sr = x[0] - 0.809017f * ar + 0.309017f * br, si = x[1] - 0.809017f * ai + 0.309017f * bi;
  float tr = 0.587785f * cr - 0.951057f * dr, ti = 0.587785f * ci - 0.951057f * di;
  o[4] = sr + ti;
  o[5] = si - tr;
  o[6] = sr - ti;
  o[7] = si + tr;
}

void daubechies_4_f32(float *R low, float *R high, const float *R x) {
  for (int i = 0; i < 4; i++) {
    const float *y = x + 2 * i;
    low[i] = 0.4829629f * y[0] + 0.8365163f * y[1] + 0.2241439f * y[2] - 0.1294095f * y[3];
    high[i] = -0.1294095f * y[0] - 0.2241439f * y[1] + 0.8365163f * y[2] - 0.4829629f * y[3];
  }
}

void inverse_3x3_f32(float *R o, const float *R m) {
  float a = m[4] * m[8] - m[5] * m[7], b = m[5] * m[6] - m[3] * m[8], c = m[3] * m[7] - m[4] * m[6];
  float d = 1.0f / (m[0] * a + m[1] * b + m[2] * c);
  o[0] = a * d;
  o[3] = b * d;
  o[6] = c * d;
  o[1] = (m[2] * m[7] - m[1] * m[8]) * d;
  o[4] = (m[0] * m[8] - m[2] * m[6]) * d;
  o[7] = (m[1] * m[6] - m[0] * m[7]) * d;
  o[2] = (m[1] * m[5] - m[2] * m[4]) * d;
  o[5] = (m[2] * m[3] - m[0] * m[5]) * d;
  o[8] = (m[0] * m[4] - m[1] * m[3]) * d;
}

void keccak_chi_2_u64(uint64_t *R s) {
  for (int j = 0; j < 10; j += 5) {
    uint64_t t[5];
    for (int i = 0; i < 5; i++) t[i] = s[j + i];
    for (int i = 0; i < 5; i++) s[j + i] = t[i] ^ (~t[(i + 1) % 5] & t[(i + 2) % 5]);
  }
}

void morton_encode_4_u32(uint32_t *R o, const uint16_t *R x, const uint16_t *R y) {
  for (int i = 0; i < 4; i++) {
    uint32_t a = x[i], b = y[i];
    a = (a | a << 8) & 0xff00ffu;
    a = (a | a << 4) & 0xf0f0f0fu;
    a = (a | a << 2) & 0x33333333u;
    a = (a | a << 1) & 0x55555555u;
    b = (b | b << 8) & 0xff00ffu;
    b = (b | b << 4) & 0xf0f0f0fu;
    b = (b | b << 2) & 0x33333333u;
    b = (b | b << 1) & 0x55555555u;
    o[i] = a | b << 1;
  }
}

void float_to_pcm_4_i16(int16_t *R o, const float *R x) {
  for (int i = 0; i < 4; i++) o[i] = (int16_t)(x[i] * 32767.0f);
}

void mean_of_three_4_i32(int *R o, const int *R x) {
  for (int i = 0; i < 4; i++) o[i] = (x[i] + x[i + 4] + x[i + 8]) / 3;
}

int largest_of_16_i32(const int *x) {
  int most = x[0];
  for (int i = 1; i < 16; i++) most = x[i] > most ? x[i] : most;
  return most;
}

// clang unrolls this by 16 and puts the counter's low bits in with `or disjoint`.
void smooth_f32(float *R a, const float *R b, long n) {
  float before = b[n];
  for (long i = 0; i < n; i += 2) {
    float now = b[i], next = b[i + 1];
    a[i] = (now + before) * 0.5f;
    a[i + 1] = (next + now) * 0.5f;
    before = next;
  }
}
