// Transforms, filters and colors: complex numbers, strides, short integers, saturation.
#include "hash.h"

typedef struct { float re, im; } Complex;

KERNEL void radix4(Complex *x, const Complex *w) {
  Complex a = x[0], b = x[1], c = x[2], d = x[3];
  Complex s = {a.re + c.re, a.im + c.im}, t = {a.re - c.re, a.im - c.im};
  Complex u = {b.re + d.re, b.im + d.im}, v = {b.im - d.im, d.re - b.re};
  Complex y[4] = {{s.re + u.re, s.im + u.im}, {t.re + v.re, t.im + v.im}, {s.re - u.re, s.im - u.im}, {t.re - v.re, t.im - v.im}};
  for (int k = 0; k < 4; k++) {
    x[k].re = y[k].re * w[k].re - y[k].im * w[k].im;
    x[k].im = y[k].re * w[k].im + y[k].im * w[k].re;
  }
}

KERNEL void fft16(Complex *R x, const Complex *R w) {
  for (int half = 1; half < 16; half *= 2)
    for (int k = 0; k < 16; k += 2 * half)
      for (int j = 0; j < half; j++) {
        Complex a = x[k + j], b = x[k + j + half], f = w[j * (8 / half)];
        float re = b.re * f.re - b.im * f.im, im = b.re * f.im + b.im * f.re;
        x[k + j].re = a.re + re;
        x[k + j].im = a.im + im;
        x[k + j + half].re = a.re - re;
        x[k + j + half].im = a.im - im;
      }
}

KERNEL void complex_divide(double *R o, const double *R a, const double *R b) {
  for (int k = 0; k < 2; k++) {
    double n = b[2 * k] * b[2 * k] + b[2 * k + 1] * b[2 * k + 1];
    o[2 * k] = (a[2 * k] * b[2 * k] + a[2 * k + 1] * b[2 * k + 1]) / n;
    o[2 * k + 1] = (a[2 * k + 1] * b[2 * k] - a[2 * k] * b[2 * k + 1]) / n;
  }
}

KERNEL void rgb_to_yuv_u8(uint8_t *R y, uint8_t *R u, uint8_t *R v, const uint8_t *R rgb, int n) {
  for (int i = 0; i < n; i++) {
    int r = rgb[3 * i], g = rgb[3 * i + 1], b = rgb[3 * i + 2];
    y[i] = (uint8_t)((66 * r + 129 * g + 25 * b + 128 + 16 * 256) >> 8);
    u[i] = (uint8_t)((-38 * r - 74 * g + 112 * b + 128 + 128 * 256) >> 8);
    v[i] = (uint8_t)((112 * r - 94 * g - 18 * b + 128 + 128 * 256) >> 8);
  }
}

KERNEL void premultiply_rgba(uint8_t *p) {
  for (int k = 0; k < 2; k++) {
    unsigned a = p[4 * k + 3];
    for (int c = 0; c < 3; c++) p[4 * k + c] = (uint8_t)((p[4 * k + c] * a + 127) / 255);
  }
}

KERNEL void saturate_i16(int16_t *R o, const int16_t *R a, const int16_t *R b) {
  for (int k = 0; k < 8; k++) {
    int s = a[k] + b[k];
    o[k] = (int16_t)(s > 32767 ? 32767 : s < -32768 ? -32768 : s);
  }
}

KERNEL void every_third(float *R o, const float *R x) {
  for (int k = 0; k < 4; k++) o[2 * k] = x[3 * k] * 0.25f + x[3 * k + 1] * 0.5f + x[3 * k + 2] * 0.25f;
}

KERNEL int64_t dot_i16(const int16_t *R a, const int16_t *R b, int n) {
  int64_t sum = 0;
  for (int i = 0; i + 4 <= n; i += 4)
    sum += a[i] * b[i] + (int64_t)(a[i + 1] * b[i + 1]) + a[i + 2] * b[i + 2] + (int64_t)(a[i + 3] * b[i + 3]);
  return sum;
}

KERNEL float dot_f32(const float *R a, const float *R b, int n) {
  float sum = 0;
  for (int i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

KERNEL void haar(double *x, double *y) {  // may overlap
  for (int k = 0; k < 4; k++) {
    double a = x[2 * k], b = x[2 * k + 1];
    y[k] = (a + b) * 0.5;
    y[k + 4] = (a - b) * 0.5;
  }
}

KERNEL int argmin4(const float *R x) {
  int best = 0;
  for (int k = 1; k < 4; k++)
    if (x[k] < x[best]) best = k;
  return best;
}

uint64_t run(void) {
  static Complex x[16], w[16];
  static double a[16], b[16], o[16];
  static uint8_t rgb[96], y[32], u[32], v[32];
  static int16_t p[32], q[32], s[32];
  for (int round = 0; round < 50; round++) {
    fill_f32((float *)x, 32), fill_f32((float *)w, 32), fill_f64(a, 16), fill_f64(b, 16);
    fill_bytes(rgb, 96), fill_bytes(p, 64), fill_bytes(q, 64);
    radix4(x, w), radix4(x + 4, x + 5), mix_f32((float *)x, 32);
    fft16(x, w), mix_f32((float *)x, 32);
    complex_divide(o, a, b), haar(a, o), haar(a, a + 3), haar(a + 2, a), mix_f64(o, 16), mix_f64(a, 16);
    rgb_to_yuv_u8(y, u, v, rgb, 29), mix_bytes(y, 32), mix_bytes(u, 32), mix_bytes(v, 32);
    premultiply_rgba(rgb), mix_bytes(rgb, 8);
    saturate_i16(s, p, q), mix_bytes(s, 16), mix((uint64_t)dot_i16(p, q, 30));
    every_third((float *)o, (float *)x), mix_f32((float *)o, 8);
    float d = dot_f32((float *)x, (float *)w, 31);
    mix_f32(&d, 1), mix((uint64_t)argmin4((float *)w));
  }
  return hash;
}
