// What PyTorch does in many passes over memory, in one. `heddle lanes` packs this into fused.ll (make.py).
#include <stdint.h>

#define R restrict
#define EACH8 _Pragma("clang loop unroll(full)") for (int k = 0; k < 8; k++)

static inline void turn(float *R out, const float *R x, const float *R c, const float *R s, int64_t half, float sign) {
  int64_t i = 0;
  for (; i + 8 <= half; i += 8) {
    float left[8], right[8];  // stored afterwards: nobody says that the halves of a row do not overlap
    EACH8 {
      float a = x[i + k], b = x[half + i + k], turned = s[i + k] * sign;
      left[k] = a * c[i + k] - b * turned;
      right[k] = b * c[i + k] + a * turned;
    }
    EACH8 out[i + k] = left[k];
    EACH8 out[half + i + k] = right[k];
  }
  for (; i < half; i++) {
    float a = x[i], b = x[half + i], turned = s[i] * sign;
    out[i] = a * c[i] - b * turned;
    out[half + i] = b * c[i] + a * turned;
  }
}

// Rotary positions of [batch, heads, positions, 2 * half]; strides of x, then of out; sign -1 turns back.
void rotate(float *R out, const float *R x, const float *R c, const float *R s, const int64_t *R sizes,
            const int64_t *R from, const int64_t *R to, int64_t step, float sign) {
  for (int64_t b = 0; b < sizes[0]; b++)
    for (int64_t h = 0; h < sizes[1]; h++)
      for (int64_t p = 0; p < sizes[2]; p++)
        turn(out + b * to[0] + h * to[1] + p * to[2], x + b * from[0] + h * from[1] + p * from[2], c + p * step,
             s + p * step, sizes[3], sign);
}

static inline uint32_t mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// Keeps what the hash of (token, feature) lets through, times scale; the rest becomes zero.
void dropout(float *R out, const float *R x, const uint32_t *R tokens, const uint32_t *R features, int64_t rows,
             int64_t width, int32_t threshold, float scale) {
  for (int64_t r = 0; r < rows; r++) {
    uint32_t token = tokens[r];
    float *R o = out + r * width;
    const float *R in = x + r * width;
    int64_t i = 0;
    for (; i + 8 <= width; i += 8) {
      float kept[8];  // computed in any case: a choice of values, not a branch
      EACH8 {
        float scaled = in[i + k] * scale;
        kept[k] = (int32_t)mix(token + features[i + k]) >= threshold ? scaled : 0.0f;
      }
      EACH8 o[i + k] = kept[k];
    }
    for (; i < width; i++) o[i] = (int32_t)mix(token + features[i]) >= threshold ? in[i] * scale : 0.0f;
  }
}
