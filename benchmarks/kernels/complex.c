// Complex arithmetic and small transforms, interleaved as (real, imaginary).
#define R restrict

void complex_multiply_4_f32(float *R o, const float *R a, const float *R b) {
  for (int i = 0; i < 4; i++) {
    float ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
    o[2 * i] = ar * br - ai * bi;
    o[2 * i + 1] = ar * bi + ai * br;
  }
}

void complex_multiply_2_f64(double *R o, const double *R a, const double *R b) {
  for (int i = 0; i < 2; i++) {
    double ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
    o[2 * i] = ar * br - ai * bi;
    o[2 * i + 1] = ar * bi + ai * br;
  }
}

void complex_multiply_conjugate_2_f32(float *R o, const float *R a, const float *R b) {
  for (int i = 0; i < 2; i++) {
    float ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
    o[2 * i] = ar * br + ai * bi;
    o[2 * i + 1] = ai * br - ar * bi;
  }
}

void complex_multiply_add_3_f32(float *R o, const float *R a, const float *R b) {
  for (int i = 0; i < 3; i++) {
    float ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
    o[2 * i] += ar * br - ai * bi;
    o[2 * i + 1] += ar * bi + ai * br;
  }
}

void fft4_f64_in_place(double *x) {
  double ar = x[0] + x[4], ai = x[1] + x[5], br = x[0] - x[4], bi = x[1] - x[5];
  double cr = x[2] + x[6], ci = x[3] + x[7], dr = x[2] - x[6], di = x[3] - x[7];
  x[0] = ar + cr;
  x[1] = ai + ci;
  x[2] = br + di;
  x[3] = bi - dr;
  x[4] = ar - cr;
  x[5] = ai - ci;
  x[6] = br - di;
  x[7] = bi + dr;
}

void fft8_f32(float *R o, const float *R x) {
  const float h = 0.70710678f;
  float r[8], s[8];
  for (int i = 0; i < 4; i++) {
    r[i] = x[2 * i] + x[2 * i + 8];
    s[i] = x[2 * i + 1] + x[2 * i + 9];
    r[i + 4] = x[2 * i] - x[2 * i + 8];
    s[i + 4] = x[2 * i + 1] - x[2 * i + 9];
  }
  float t5r = (r[5] + s[5]) * h, t5i = (s[5] - r[5]) * h;
  float t6r = s[6], t6i = -r[6];
  float t7r = (s[7] - r[7]) * h, t7i = (-r[7] - s[7]) * h;
  float a0 = r[0] + r[2], a1 = s[0] + s[2], a2 = r[0] - r[2], a3 = s[0] - s[2];
  float b0 = r[1] + r[3], b1 = s[1] + s[3], b2 = s[1] - s[3], b3 = r[3] - r[1];
  o[0] = a0 + b0;
  o[1] = a1 + b1;
  o[8] = a0 - b0;
  o[9] = a1 - b1;
  o[4] = a2 + b2;
  o[5] = a3 + b3;
  o[12] = a2 - b2;
  o[13] = a3 - b3;
  float c0 = r[4] + t6r, c1 = s[4] + t6i, c2 = r[4] - t6r, c3 = s[4] - t6i;
  float d0 = t5r + t7r, d1 = t5i + t7i, d2 = t5i - t7i, d3 = t7r - t5r;
  o[2] = c0 + d0;
  o[3] = c1 + d1;
  o[10] = c0 - d0;
  o[11] = c1 - d1;
  o[6] = c2 + d2;
  o[7] = c3 + d3;
  o[14] = c2 - d2;
  o[15] = c3 - d3;
}

void butterfly_radix2_f32(float *R x, float *R y, const float *R w) {
  for (int i = 0; i < 4; i++) {
    float wr = w[2 * i], wi = w[2 * i + 1];
    float tr = y[2 * i] * wr - y[2 * i + 1] * wi, ti = y[2 * i] * wi + y[2 * i + 1] * wr;
    float ur = x[2 * i], ui = x[2 * i + 1];
    x[2 * i] = ur + tr;
    x[2 * i + 1] = ui + ti;
    y[2 * i] = ur - tr;
    y[2 * i + 1] = ui - ti;
  }
}

void walsh_hadamard_8_i32(int *R o, const int *R x) {
  int a[8], b[8];
  for (int i = 0; i < 4; i++) {
    a[i] = x[i] + x[i + 4];
    a[i + 4] = x[i] - x[i + 4];
  }
  for (int i = 0; i < 2; i++) {
    b[i] = a[i] + a[i + 2];
    b[i + 2] = a[i] - a[i + 2];
    b[i + 4] = a[i + 4] + a[i + 6];
    b[i + 6] = a[i + 4] - a[i + 6];
  }
  for (int i = 0; i < 8; i += 2) {
    o[i] = b[i] + b[i + 1];
    o[i + 1] = b[i] - b[i + 1];
  }
}

void rotary_interleaved_8(float *R o, const float *R x, const float *R c, const float *R s) {
  for (int i = 0; i < 8; i += 2) {
    float a = x[i], b = x[i + 1];
    o[i] = a * c[i / 2] - b * s[i / 2];
    o[i + 1] = a * s[i / 2] + b * c[i / 2];
  }
}

void rotary_interleaved_in_place_16(float *R x, const float *R cs) {
  for (int i = 0; i < 16; i += 2) {
    float a = x[i], b = x[i + 1];
    x[i] = a * cs[i] - b * cs[i + 1];
    x[i + 1] = a * cs[i + 1] + b * cs[i];
  }
}
