// Geometry and physics: small matrices, quaternions, structures, conditions, loops of unknown length.
#include "hash.h"

typedef struct { double x, y, z, mass; float charge; int16_t kind; uint8_t flag; } Body;
typedef struct { float m[4][4]; } Matrix;
typedef struct Node { struct Node *left, *right; double low[3], high[3]; } Node;

double __attribute__((pure)) sqrt(double);

KERNEL Matrix product(const Matrix *a, const Matrix *b) {
  Matrix o;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      float s = 0;
      for (int k = 0; k < 4; k++) s += a->m[i][k] * b->m[k][j];
      o.m[i][j] = s;
    }
  return o;
}

KERNEL void transpose(Matrix *m) {
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < i; j++) {
      float t = m->m[i][j];
      m->m[i][j] = m->m[j][i];
      m->m[j][i] = t;
    }
}

KERNEL double invert3(double *R o, const double *R m) {
  double c0 = m[4] * m[8] - m[5] * m[7], c1 = m[5] * m[6] - m[3] * m[8], c2 = m[3] * m[7] - m[4] * m[6];
  double d = m[0] * c0 + m[1] * c1 + m[2] * c2, r = 1.0 / d;
  o[0] = c0 * r, o[3] = c1 * r, o[6] = c2 * r;
  o[1] = (m[2] * m[7] - m[1] * m[8]) * r, o[4] = (m[0] * m[8] - m[2] * m[6]) * r, o[7] = (m[1] * m[6] - m[0] * m[7]) * r;
  o[2] = (m[1] * m[5] - m[2] * m[4]) * r, o[5] = (m[2] * m[3] - m[0] * m[5]) * r, o[8] = (m[0] * m[4] - m[1] * m[3]) * r;
  return d;
}

KERNEL void rotate_by(float *R o, const float *R q, const float *R v) {
  float tx = 2 * (q[1] * v[2] - q[2] * v[1]), ty = 2 * (q[2] * v[0] - q[0] * v[2]), tz = 2 * (q[0] * v[1] - q[1] * v[0]);
  o[0] = v[0] + q[3] * tx + q[1] * tz - q[2] * ty;
  o[1] = v[1] + q[3] * ty + q[2] * tx - q[0] * tz;
  o[2] = v[2] + q[3] * tz + q[0] * ty - q[1] * tx;
}

KERNEL void pull(Body *b, int n, double step, double *R speed) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      if (i == j || b[j].flag & 1) continue;
      double dx = b[j].x - b[i].x, dy = b[j].y - b[i].y, dz = b[j].z - b[i].z;
      double d = dx * dx + dy * dy + dz * dz + 1e-3, f = b[j].mass / (d * sqrt(d)) * step;
      speed[3 * i] += dx * f, speed[3 * i + 1] += dy * f, speed[3 * i + 2] += dz * f;
    }
  for (int i = 0; i < n; i++) b[i].x += speed[3 * i], b[i].y += speed[3 * i + 1], b[i].z += speed[3 * i + 2];
}

KERNEL void clip(double *R p, const double *R low, const double *R high) {
  for (int k = 0; k < 4; k++) p[k] = p[k] < low[k] ? low[k] : p[k] > high[k] ? high[k] : p[k];
}

KERNEL void relu_or_leak(float *R o, const float *R x, float leak) {
  for (int k = 0; k < 8; k++) o[k] = x[k] > 0 ? x[k] : x[k] * leak;
}

KERNEL void branches(double *R o, const double *R x, int mode) {
  switch (mode) {
    case 0: for (int k = 0; k < 4; k++) o[k] = x[k] + 1; break;
    case 1: for (int k = 0; k < 4; k++) o[k] = x[3 - k] * 2; break;
    case 7: o[0] = x[0] / x[1], o[1] = x[2] / x[3]; break;
    default: for (int k = 0; k < 4; k++) o[k] = -x[k];
  }
}

KERNEL double surface(const Node *n) {  // calls itself
  if (!n) return 0;
  double e[3];
  for (int k = 0; k < 3; k++) e[k] = n->high[k] - n->low[k];
  return e[0] * e[1] + e[1] * e[2] + e[2] * e[0] + surface(n->left) - surface(n->right);
}

KERNEL void joined(Node *o, const Node *a, const Node *b) {
  for (int k = 0; k < 3; k++) {
    o->low[k] = a->low[k] < b->low[k] ? a->low[k] : b->low[k];
    o->high[k] = a->high[k] > b->high[k] ? a->high[k] : b->high[k];
  }
}

KERNEL void convert(double *R o, const float *R a, const int32_t *R b, const uint16_t *R c, const int8_t *R d) {
  for (int k = 0; k < 4; k++) o[k] = (double)a[k] + b[k] * 0.5 - c[k] + d[k];
}

KERNEL void back_again(int32_t *R o, float *R f, const double *R x) {
  for (int k = 0; k < 4; k++) {
    double v = x[k] > -1e6 && x[k] < 1e6 ? x[k] : 0;
    o[k] = (int32_t)(v * 100);
    f[k] = (float)x[k];
  }
}

KERNEL void sweep(double *x, int n) {  // each needs the one before
  for (int i = 2; i < n; i++) x[i] = x[i] - 0.5 * x[i - 1] + 0.25 * x[i - 2];
}

uint64_t run(void) {
  static Matrix a, b, c;
  static Body bodies[6];
  static double x[32], y[32], speed[18];
  static Node nodes[7];
  static int32_t w[8];
  static float f[16], g[16];
  for (int round = 0; round < 40; round++) {
    fill_f32(&a.m[0][0], 16), fill_f32(&b.m[0][0], 16), fill_f64(x, 32), fill_f32(f, 16), fill_bytes(w, 32);
    c = product(&a, &b), transpose(&c), c = product(&c, &c), mix_f32(&c.m[0][0], 16);
    double d = invert3(y, x);
    mix_f64(&d, 1), mix_f64(y, 9), rotate_by(g, f, f + 4), mix_f32(g, 3);
    for (int i = 0; i < 6; i++) bodies[i] = (Body){x[i], x[i + 6], x[i + 12], x[i + 18], f[i], 3, (uint8_t)w[0] >> i};
    pull(bodies, 5, 0.01, speed), mix_f64(speed, 18);
    for (int i = 0; i < 6; i++) mix_f64(&bodies[i].x, 4);
    clip(x, y, x + 8), clip(x + 1, x + 9, x + 20), mix_f64(x, 12);
    relu_or_leak(g, f, 0.01f), mix_f32(g, 8), branches(y, x, round % 9), mix_f64(y, 9);
    for (int i = 0; i < 7; i++) {
      memcpy(nodes[i].low, x + i, 24), memcpy(nodes[i].high, x + 7 + i, 24);
      nodes[i].left = 2 * i + 1 < 7 ? nodes + 2 * i + 1 : 0, nodes[i].right = 2 * i + 2 < 7 ? nodes + 2 * i + 2 : 0;
    }
    joined(nodes, nodes, nodes + 1), joined(nodes + 2, nodes + 3, nodes + 2);
    d = surface(nodes), mix_f64(&d, 1);
    convert(y, f, w, (uint16_t *)w, (int8_t *)w + 3), mix_f64(y, 4);
    back_again(w, g, x), mix_bytes(w, 16), mix_f32(g, 4), sweep(x, 11 + round % 4), mix_f64(x, 32);
  }
  return hash;
}
