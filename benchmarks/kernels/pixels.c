// Colors, filters and packed integers.
#include <stdint.h>
#define R restrict

void rgb_to_yuv_planar_4_f32(float *R y, float *R u, float *R v, const float *R rgb) {
  for (int i = 0; i < 4; i++) {
    float r = rgb[3 * i], g = rgb[3 * i + 1], b = rgb[3 * i + 2];
    y[i] = 0.299f * r + 0.587f * g + 0.114f * b;
    u[i] = -0.147f * r - 0.289f * g + 0.436f * b;
    v[i] = 0.615f * r - 0.515f * g - 0.100f * b;
  }
}

void rgb_to_yuv_interleaved_4_f32(float *R o, const float *R rgb) {
  for (int i = 0; i < 4; i++) {
    float r = rgb[3 * i], g = rgb[3 * i + 1], b = rgb[3 * i + 2];
    o[3 * i] = 0.299f * r + 0.587f * g + 0.114f * b;
    o[3 * i + 1] = -0.147f * r - 0.289f * g + 0.436f * b;
    o[3 * i + 2] = 0.615f * r - 0.515f * g - 0.100f * b;
  }
}

void fir8_4_f32(float *R o, const float *R x, const float *R h) {
  for (int i = 0; i < 4; i++) {
    float s = x[i] * h[0];
    for (int k = 1; k < 8; k++) s += x[i + k] * h[k];
    o[i] = s;
  }
}

void biquad_2_f64(double *R y, double *R z, const double *R x, const double *R c) {
  for (int k = 0; k < 2; k++) {
    double o = c[0] * x[k] + z[2 * k];
    z[2 * k] = c[1] * x[k] - c[3] * o + z[2 * k + 1];
    z[2 * k + 1] = c[2] * x[k] - c[4] * o;
    y[k] = o;
  }
}

void blend_pixels_2_u8(uint8_t *R o, const uint8_t *R a, const uint8_t *R b) {
  for (int p = 0; p < 2; p++) {
    unsigned alpha = a[4 * p + 3];
    for (int i = 0; i < 4; i++) o[4 * p + i] = (a[4 * p + i] * alpha + b[4 * p + i] * (255 - alpha) + 128) >> 8;
  }
}

void dct8_i32(int *R o, const int *R x) {
  int a0 = x[0] + x[7], a1 = x[1] + x[6], a2 = x[2] + x[5], a3 = x[3] + x[4];
  int b0 = x[0] - x[7], b1 = x[1] - x[6], b2 = x[2] - x[5], b3 = x[3] - x[4];
  o[0] = 64 * (a0 + a1 + a2 + a3);
  o[4] = 64 * (a0 - a1 - a2 + a3);
  o[2] = 83 * (a0 - a3) + 36 * (a1 - a2);
  o[6] = 36 * (a0 - a3) - 83 * (a1 - a2);
  o[1] = 89 * b0 + 75 * b1 + 50 * b2 + 18 * b3;
  o[3] = 75 * b0 - 18 * b1 - 89 * b2 - 50 * b3;
  o[5] = 50 * b0 - 89 * b1 + 18 * b2 + 75 * b3;
  o[7] = 18 * b0 - 50 * b1 + 75 * b2 - 89 * b3;
}

void unpack_4bit_16_f32(float *R o, const uint8_t *R q, float scale, float zero) {
  for (int i = 0; i < 8; i++) {
    o[2 * i] = ((float)(q[i] & 15) - zero) * scale;
    o[2 * i + 1] = ((float)(q[i] >> 4) - zero) * scale;
  }
}

int sum_of_absolute_differences_8(const uint8_t *R a, const uint8_t *R b) {
  int s = 0;
  for (int i = 0; i < 8; i++) {
    int d = a[i] - b[i];
    s += d < 0 ? -d : d;
  }
  return s;
}

int dot_product_8_i16(const int16_t *R a, const int16_t *R b) {
  int s = 0;
  for (int i = 0; i < 8; i++) s += a[i] * b[i];
  return s;
}

void sobel_4_i16(int16_t *R o, const int16_t *R a, const int16_t *R b, const int16_t *R c) {
  for (int i = 0; i < 4; i++) {
    int x = (a[i + 2] - a[i]) + 2 * (b[i + 2] - b[i]) + (c[i + 2] - c[i]);
    int y = (c[i] - a[i]) + 2 * (c[i + 1] - a[i + 1]) + (c[i + 2] - a[i + 2]);
    o[i] = (int16_t)((x < 0 ? -x : x) + (y < 0 ? -y : y));
  }
}

void chacha_quarters_u32(uint32_t *R x) {
  uint32_t a[4], b[4], c[4], d[4];
  for (int i = 0; i < 4; i++) {
    a[i] = x[i] + x[4 + i];
    d[i] = x[12 + i] ^ a[i];
    d[i] = d[i] << 16 | d[i] >> 16;
    c[i] = x[8 + i] + d[i];
    b[i] = x[4 + i] ^ c[i];
    b[i] = b[i] << 12 | b[i] >> 20;
  }
  for (int i = 0; i < 4; i++) {
    x[i] = a[i];
    x[4 + i] = b[i];
    x[8 + i] = c[i];
    x[12 + i] = d[i];
  }
}

void lerp_rgba_f32(float *R o, const float *R a, const float *R b, float t) {
  for (int i = 0; i < 4; i++) o[i] = a[i] + (b[i] - a[i]) * t;
}

void bilinear_rgb_f32(float *R o, const float *R p, const float *R q, float u, float v) {
  for (int i = 0; i < 3; i++) {
    float top = p[i] * (1 - u) + p[i + 3] * u, low = q[i] * (1 - u) + q[i + 3] * u;
    o[i] = top * (1 - v) + low * v;
  }
}

void polynomial_4_f64(double *R o, const double *R x) {
  for (int i = 0; i < 4; i++) o[i] = ((2.5 * x[i] - 1.25) * x[i] + 0.75) * x[i] + 3.0;
}

void heat_stencil_4_f64(double *R o, const double *R up, const double *R at, const double *R down) {
  for (int i = 1; i < 5; i++) o[i] = at[i] + 0.1 * (up[i] + down[i] + at[i - 1] + at[i + 1] - 4.0 * at[i]);
}

void swap_pairs_f64(double *x) {
  for (int i = 0; i < 8; i += 2) {
    double t = x[i];
    x[i] = x[i + 1] * 2.0;
    x[i + 1] = t * 2.0;
  }
}
