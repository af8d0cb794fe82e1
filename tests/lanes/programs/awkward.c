// What must stay as it is: volatile, atomics, varargs, calls, aliases, pointers to pointers, globals, goto, unions.
#include "hash.h"
#include <stdarg.h>

volatile int device[4];
int counter;
double table[8] = {1, 2, 3, 4, 5, 6, 7, 8}, *cursor = table;
float rows[4][4], *row_of[4];

KERNEL void poke(int *R o) {
  for (int k = 0; k < 4; k++) device[k] = o[k] + 1;
  for (int k = 0; k < 4; k++) o[k] = device[3 - k] * 2;
}

KERNEL void count(int *R o) {
  for (int k = 0; k < 4; k++) o[k] += __atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
  for (int k = 0; k < 4; k++) o[k] += __atomic_load_n(&counter, __ATOMIC_ACQUIRE);
}

KERNEL double sum_of(int n, ...) {
  va_list list;
  va_start(list, n);
  double s = 0;
  for (int i = 0; i < n; i++) s += va_arg(list, double);
  va_end(list);
  return s;
}

KERNEL double noted(double x) { return table[2] += x; }

KERNEL void with_calls(double *o, const double *x) {
  o[0] = noted(x[0]) + table[2], o[1] = noted(x[1]) + table[2], o[2] = noted(x[2]) * table[1], o[3] = noted(x[3]) * table[1];
}

KERNEL void through_cursor(double *o) {  // o may be the table, or the cursor
  for (int k = 0; k < 4; k++) o[k] = cursor[k] * 2 + table[k];
}

KERNEL void through_rows(float **o, float *const *x) {
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) o[i][j] = x[j][i] + 1;
}

KERNEL void shifted(float *o, const float *x) {  // overlapping by one
  for (int k = 0; k < 8; k++) o[k] = x[k] * 2;
}

KERNEL void same_place(int *p) { p[0] = 1, p[1] = p[0] + 1, p[0] = p[1] + 1, p[1] = p[0] + p[1], p[2] = p[1], p[3] = p[0]; }

union Word { uint64_t whole; uint32_t half[2]; uint8_t byte[8]; double real; };

KERNEL uint64_t punned(union Word *w) {
  w->half[0] += 7, w->half[1] += 9;
  w->byte[3] ^= 0x55;
  uint64_t before = w->whole;
  w->real += 1;
  return before ^ w->whole;
}

KERNEL int states(const char *s, int *R seen) {
  int at = 0;
start:
  if (*s == 'a') { seen[0]++; s++; goto start; }
  if (*s == 'b') { seen[1] += 2; seen[2] += 2; s++; at++; goto start; }
  if (*s) { seen[3]--; s += 1; if (at < 9) goto start; }
  return at;
}

KERNEL void copies(char *R o, const char *R x, int n) {
  memcpy(o, x, 16);
  memset(o + 16, n, 8);
  memmove(o + 3, o, 9);
  for (int i = 0; i < 4; i++) o[i] += o[20 + i];
}

KERNEL void by_index(float *R o, const float *R x, const int *R at) {
  for (int k = 0; k < 4; k++) o[at[k]] = x[at[3 - k]] + x[k];
}

KERNEL void lengths(int n, double a[n][n], const double *x) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) a[i][j] += x[i] * x[j];
}

typedef double (*Function)(double);
KERNEL void apply(Function f, double *R x) { x[0] = f(x[0]), x[1] = f(x[1]), x[2] = -x[2], x[3] = -x[3]; }

KERNEL long double wide(const long double *x) { return x[0] * x[1] + x[1] * 3; }

KERNEL unsigned __int128 wider(unsigned __int128 a, uint64_t b) { return a * b + (a >> 7); }

KERNEL void booleans(_Bool *R o, const int *R a, const int *R b) {
  for (int k = 0; k < 8; k++) o[k] = a[k] < b[k] && a[k] != 3;
}

KERNEL void from_stack(double *o) {
  double t[4] = {o[3], o[2], o[1], o[0]};
  noted(t[0]);
  for (int k = 0; k < 4; k++) o[k] = t[k] + table[k];
}

uint64_t run(void) {
  static int w[16];
  static double x[32], y[32];
  static float f[32];
  static char s[32];
  static _Bool flags[8];
  long double l[2] = {1.25L, 3.5L};
  for (int i = 0; i < 4; i++) row_of[i] = rows[i];
  for (int round = 0; round < 40; round++) {
    fill_bytes(w, 64), fill_f64(x, 32), fill_f32(f, 32), fill_f32(&rows[0][0], 16), fill_bytes(s, 32);
    for (int i = 0; i < 16; i++) w[i] >>= 3;
    poke(w), count(w + 4), mix_bytes(w, 32), same_place(w + 6), mix_bytes(w, 64);
    table[2] = 3;
    double d = sum_of(3, x[0], x[1], x[2]);
    mix_f64(&d, 1), with_calls(y, x), with_calls(table + 1, table), mix_f64(y, 4), mix_f64(table, 8);
    for (int i = 0; i < 8; i++) table[i] = i;
    cursor = table + round % 4;
    through_cursor(y), through_cursor(table + 1), mix_f64(y, 4), mix_f64(table, 8);
    for (int i = 0; i < 8; i++) table[i] = i;
    through_rows(row_of, row_of), mix_f32(&rows[0][0], 16);
    shifted(f + 1, f), shifted(f + 9, f + 12), shifted(f, f + 20), mix_f32(f, 32);
    mix(punned((union Word *)(w + 2))), mix((uint64_t)states("aabbcab", w));
    copies(s, (char *)w, round), mix_bytes(s, 32);
    int at[4] = {round % 4, 3, 1 + round % 2, 5};
    by_index(f, f + 8, at), mix_f32(f, 8), lengths(3 + round % 3, (void *)y, x), mix_f64(y, 32);
    apply(noted, x), mix_f64(x, 4), booleans(flags, w, w + 4), mix_bytes(flags, 8), from_stack(x), mix_f64(x, 4);
    l[1] += wide(l) > 20 ? -l[1] + 1 : 0.5L, mix((uint64_t)l[1]), mix((uint64_t)(wider(hash, seed) >> 60));
  }
  return hash;
}
