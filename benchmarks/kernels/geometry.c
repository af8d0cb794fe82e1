// Vectors of three, quaternions, small matrices.
#define R restrict

void cross_f32(float *R o, const float *R a, const float *R b) {
  o[0] = a[1] * b[2] - a[2] * b[1];
  o[1] = a[2] * b[0] - a[0] * b[2];
  o[2] = a[0] * b[1] - a[1] * b[0];
}

void cross_4_f32(float *R o, const float *R a, const float *R b) {
  for (int k = 0; k < 12; k += 3) {
    o[k] = a[k + 1] * b[k + 2] - a[k + 2] * b[k + 1];
    o[k + 1] = a[k + 2] * b[k] - a[k] * b[k + 2];
    o[k + 2] = a[k] * b[k + 1] - a[k + 1] * b[k];
  }
}

void normalize_4_f32(float *R o, const float *R a) {
  for (int k = 0; k < 12; k += 3) {
    float n = __builtin_sqrtf(a[k] * a[k] + a[k + 1] * a[k + 1] + a[k + 2] * a[k + 2]);
    o[k] = a[k] / n;
    o[k + 1] = a[k + 1] / n;
    o[k + 2] = a[k + 2] / n;
  }
}

void quaternion_product_f32(float *R o, const float *R p, const float *R q) {
  o[0] = p[0] * q[0] - p[1] * q[1] - p[2] * q[2] - p[3] * q[3];
  o[1] = p[0] * q[1] + p[1] * q[0] + p[2] * q[3] - p[3] * q[2];
  o[2] = p[0] * q[2] - p[1] * q[3] + p[2] * q[0] + p[3] * q[1];
  o[3] = p[0] * q[3] + p[1] * q[2] - p[2] * q[1] + p[3] * q[0];
}

void quaternion_product_f64(double *R o, const double *R p, const double *R q) {
  o[0] = p[0] * q[0] - p[1] * q[1] - p[2] * q[2] - p[3] * q[3];
  o[1] = p[0] * q[1] + p[1] * q[0] + p[2] * q[3] - p[3] * q[2];
  o[2] = p[0] * q[2] - p[1] * q[3] + p[2] * q[0] + p[3] * q[1];
  o[3] = p[0] * q[3] + p[1] * q[2] - p[2] * q[1] + p[3] * q[0];
}

void quaternion_to_matrix_f32(float *R m, const float *R q) {
  float x = q[0], y = q[1], z = q[2], w = q[3];
  m[0] = 1 - 2 * (y * y + z * z);
  m[1] = 2 * (x * y - z * w);
  m[2] = 2 * (x * z + y * w);
  m[3] = 2 * (x * y + z * w);
  m[4] = 1 - 2 * (x * x + z * z);
  m[5] = 2 * (y * z - x * w);
  m[6] = 2 * (x * z - y * w);
  m[7] = 2 * (y * z + x * w);
  m[8] = 1 - 2 * (x * x + y * y);
}

#define PRODUCT(NAME, T, N)                                                                                            \
  void NAME(T *R o, const T *R a, const T *R b) {                                                                      \
    _Pragma("clang loop unroll(full)") for (int i = 0; i < N; i++)                                                     \
        _Pragma("clang loop unroll(full)") for (int j = 0; j < N; j++) {                                               \
      T s = a[i * N] * b[j];                                                                                           \
      _Pragma("clang loop unroll(full)") for (int k = 1; k < N; k++) s += a[i * N + k] * b[k * N + j];                 \
      o[i * N + j] = s;                                                                                                \
    }                                                                                                                  \
  }
PRODUCT(matrix_product_2_f64, double, 2)
PRODUCT(matrix_product_3_f64, double, 3)
PRODUCT(matrix_product_3_f32, float, 3)
PRODUCT(matrix_product_4_f32, float, 4)

void matrix_vector_4_f32(float *R o, const float *R m, const float *R v) {
  for (int i = 0; i < 4; i++) o[i] = m[4 * i] * v[0] + m[4 * i + 1] * v[1] + m[4 * i + 2] * v[2] + m[4 * i + 3] * v[3];
}

void matrix_vector_columns_4_f32(float *R o, const float *R m, const float *R v) {
  for (int i = 0; i < 4; i++) o[i] = m[i] * v[0] + m[4 + i] * v[1] + m[8 + i] * v[2] + m[12 + i] * v[3];
}

// The solver of a five-variable flow code: v -= a · b, column by column.
void matrix_vector_subtract_5_f64(double *R v, const double *R a, const double *R b) {
  for (int i = 0; i < 5; i++)
    v[i] = v[i] - a[i] * b[0] - a[5 + i] * b[1] - a[10 + i] * b[2] - a[15 + i] * b[3] - a[20 + i] * b[4];
}

void determinant_3_f64(double *R o, const double *R m) {
  o[0] = m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) + m[2] * (m[3] * m[7] - m[4] * m[6]);
}

void cofactors_3_f64(double *R o, const double *R m) {
  o[0] = m[4] * m[8] - m[5] * m[7];
  o[1] = m[2] * m[7] - m[1] * m[8];
  o[2] = m[1] * m[5] - m[2] * m[4];
  o[3] = m[5] * m[6] - m[3] * m[8];
  o[4] = m[0] * m[8] - m[2] * m[6];
  o[5] = m[2] * m[3] - m[0] * m[5];
  o[6] = m[3] * m[7] - m[4] * m[6];
  o[7] = m[1] * m[6] - m[0] * m[7];
  o[8] = m[0] * m[4] - m[1] * m[3];
}

void transform_points_2_f32(float *R o, const float *R m, const float *R p) {
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 3; i++)
      o[3 * k + i] = m[4 * i] * p[3 * k] + m[4 * i + 1] * p[3 * k + 1] + m[4 * i + 2] * p[3 * k + 2] + m[4 * i + 3];
}

void bounding_box_4_f32(float *R o, const float *R a) {
  for (int i = 0; i < 3; i++) {
    float lo = a[i], hi = a[i];
    for (int k = 1; k < 4; k++) {
      lo = a[3 * k + i] < lo ? a[3 * k + i] : lo;
      hi = a[3 * k + i] > hi ? a[3 * k + i] : hi;
    }
    o[i] = lo;
    o[i + 3] = hi;
  }
}

void gravity_pair_f64(double *R f, const double *R a, const double *R b) {
  double dx = b[0] - a[0], dy = b[1] - a[1], dz = b[2] - a[2];
  double d = dx * dx + dy * dy + dz * dz + 1e-9;
  double s = a[3] * b[3] / (d * __builtin_sqrt(d));
  f[0] += dx * s;
  f[1] += dy * s;
  f[2] += dz * s;
}

// One cell of a flux Jacobian as in compressible flow solvers.
void flux_jacobian_f64(double *R j, const double *R u, double c1, double c2) {
  double t1 = 1.0 / u[0], t2 = t1 * t1, qs = 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) * t2;
  j[0] = -(u[1] * u[1]) * t2 + c2 * qs;
  j[1] = (2.0 - c2) * u[1] * t1;
  j[2] = -c2 * u[2] * t1;
  j[3] = -c2 * u[3] * t1;
  j[4] = -(u[1] * u[2]) * t2;
  j[5] = u[2] * t1;
  j[6] = u[1] * t1;
  j[7] = -(u[1] * u[3]) * t2;
  j[8] = u[3] * t1;
  j[9] = u[1] * t1;
  j[10] = (c2 * 2.0 * qs - c1 * u[4] * t1) * u[1] * t1;
  j[11] = c1 * u[4] * t1 - c2 * (qs + u[1] * u[1] * t2);
  j[12] = -c2 * u[2] * u[1] * t2;
  j[13] = -c2 * u[3] * u[1] * t2;
  j[14] = c1 * u[1] * t1;
}
