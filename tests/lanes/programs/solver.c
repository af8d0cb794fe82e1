// A program of many functions: blocked products, LU, Runge-Kutta, attention of one head, 4-bit weights, softmax by series.
#include "hash.h"

KERNEL void block(double *R c, const double *R a, const double *R b) {
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) c[4 * i + j] += a[4 * i] * b[j] + a[4 * i + 1] * b[4 + j] + a[4 * i + 2] * b[8 + j] + a[4 * i + 3] * b[12 + j];
}

KERNEL int lu(double *a, int n) {
  for (int k = 0; k < n; k++) {
    if (a[k * n + k] == 0) return k + 1;
    for (int i = k + 1; i < n; i++) {
      double f = a[i * n + k] /= a[k * n + k];
      for (int j = k + 1; j < n; j++) a[i * n + j] -= f * a[k * n + j];
    }
  }
  return 0;
}

static inline void slope(double *R d, const double *R y) {
  d[0] = 10 * (y[1] - y[0]), d[1] = y[0] * (28 - y[2]) - y[1], d[2] = y[0] * y[1] - 8.0 / 3 * y[2];
}

KERNEL void runge_kutta(double *y, double h) {
  double a[3], b[3], c[3], d[3], t[3];
  slope(a, y);
  for (int k = 0; k < 3; k++) t[k] = y[k] + h / 2 * a[k];
  slope(b, t);
  for (int k = 0; k < 3; k++) t[k] = y[k] + h / 2 * b[k];
  slope(c, t);
  for (int k = 0; k < 3; k++) t[k] = y[k] + h * c[k];
  slope(d, t);
  for (int k = 0; k < 3; k++) y[k] += h / 6 * (a[k] + 2 * b[k] + 2 * c[k] + d[k]);
}

KERNEL void euler_flux(double *R f, const double *R u, double gamma) {
  double r = 1 / u[0], vx = u[1] * r, vy = u[2] * r, vz = u[3] * r;
  double p = (gamma - 1) * (u[4] - 0.5 * (u[1] * vx + u[2] * vy + u[3] * vz));
  f[0] = u[1], f[1] = u[1] * vx + p, f[2] = u[2] * vx, f[3] = u[3] * vx, f[4] = (u[4] + p) * vx;
  f[5] = u[2], f[6] = u[1] * vy, f[7] = u[2] * vy + p, f[8] = u[3] * vy, f[9] = (u[4] + p) * vy;
  f[10] = u[3], f[11] = u[1] * vz, f[12] = u[2] * vz, f[13] = u[3] * vz + p, f[14] = (u[4] + p) * vz;
}

KERNEL void unpack4(float *R o, const uint8_t *R q, const float *R scale, int n) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < 8; k++) {
      o[16 * i + 2 * k] = (float)((q[8 * i + k] & 15) - 8) * scale[i];
      o[16 * i + 2 * k + 1] = (float)((q[8 * i + k] >> 4) - 8) * scale[i];
    }
}

KERNEL void exponential4(float *R o, const float *R x) {
  for (int k = 0; k < 4; k++) {
    float t = x[k] * 0.125f, p = 1 + t * (1 + t * (0.5f + t * (0.16666667f + t * 0.041666668f)));
    p *= p, p *= p, o[k] = p * p;
  }
}

KERNEL void attend(float *R o, const float *R q, const float *R k, const float *R v, int n) {
  float total = 0, sum[4] = {0, 0, 0, 0};
  for (int i = 0; i < n; i++) {
    float s = q[0] * k[4 * i] + q[1] * k[4 * i + 1] + q[2] * k[4 * i + 2] + q[3] * k[4 * i + 3];
    float w = s * s / (1 + s * s);
    total += w;
    for (int j = 0; j < 4; j++) sum[j] += w * v[4 * i + j];
  }
  for (int j = 0; j < 4; j++) o[j] = sum[j] / total;
}

KERNEL void stencil27(double *R o, const double *R x, int n) {
  for (int i = 1; i + 1 < n; i++)
    o[i] = 0.1 * (x[i - 1] + x[i + 1]) + 0.2 * (x[i - 1 + n] + x[i + 1 + n]) + 0.05 * (x[i - 1 + 2 * n] + x[i + 1 + 2 * n]) + x[i + n];
}

KERNEL void adam4(float *R w, float *R m, float *R v, const float *R g, float rate) {
  for (int k = 0; k < 4; k++) {
    m[k] = 0.9f * m[k] + 0.1f * g[k];
    v[k] = 0.99f * v[k] + 0.01f * g[k] * g[k];
    w[k] -= rate * m[k] / (__builtin_sqrtf(v[k]) + 1e-8f);
  }
}

KERNEL void minmax(int *R o, const int *R x) {
  int low = x[0], high = x[0];
  for (int k = 1; k < 8; k++) low = x[k] < low ? x[k] : low, high = x[k] > high ? x[k] : high;
  o[0] = low, o[1] = high;
}

KERNEL void horner(double *R o, const double *R c, double x) {
  for (int k = 0; k < 4; k++) o[k] = ((c[4 * k] * x + c[4 * k + 1]) * x + c[4 * k + 2]) * x + c[4 * k + 3];
}

uint64_t run(void) {
  static double a[64], b[64], c[64];
  static float f[64], g[64], h[64], m[4], v[4];
  static uint8_t q[32];
  static int w[8];
  double y[3] = {1, 1, 1};
  for (int round = 0; round < 40; round++) {
    fill_f64(a, 64), fill_f64(b, 64), fill_f32(f, 64), fill_f32(g, 64), fill_bytes(q, 32), fill_bytes(w, 32);
    block(c, a, b), mix_f64(c, 16), mix((uint64_t)lu(a, 5 + round % 3)), mix_f64(a, 64);
    runge_kutta(y, 0.01), runge_kutta(b, 0.5), mix_f64(y, 3), mix_f64(b, 3);
    euler_flux(c, b, 1.4), mix_f64(c, 15), unpack4(h, q, f, 3), mix_f32(h, 48);
    exponential4(h, f), attend(h + 4, f, g, g + 32, 7), mix_f32(h, 8);
    stencil27(c, b, 19), mix_f64(c, 19), adam4(f, m, v, g, 0.01f), mix_f32(f, 4), mix_f32(v, 4);
    minmax((int *)g, w), mix_bytes(g, 8), horner(c, b, y[0]), mix_f64(c, 4);
  }
  return hash;
}
