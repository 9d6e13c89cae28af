// Attention of one head of one row over the cache slots that the row sees, in the order given.
//
// The order is that of the row's own path, so sums come out alike whether the slots lie together or have rejected nodes
// between them.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "vectors.h"

namespace peakplan {

// query [width], keys and values [positions, width] -> out [width]; `weights` has room for the slots, rounded up to 16.
using Attention = void (*)(const float* query, const float* keys, const float* values, const std::vector<long>& visible,
                           int width, float* weights, float* out);

// Turns scores into their exponentials, less the greatest, in place; returns their sum. What pads to 16 becomes zero.
inline float exponentials(float* scores, size_t count, float most) {
  __m512 sum = _mm512_setzero_ps();
  for (size_t i = 0; i < count; i += kLanes) {
    const __mmask16 real = count - i >= kLanes ? 0xFFFF : static_cast<__mmask16>((1u << (count - i)) - 1);
    const __m512 shifted = _mm512_sub_ps(_mm512_maskz_loadu_ps(real, scores + i), _mm512_set1_ps(most));
    const __m512 weight = _mm512_maskz_mov_ps(real, exponential(shifted));
    sum = _mm512_add_ps(sum, weight);
    _mm512_storeu_ps(scores + i, weight);
  }
  return _mm512_reduce_add_ps(sum);
}

// Vectors: registers that a head fills. The head's part of everything stays in registers.
template <int Vectors>
void attend_head(const float* query, const float* keys, const float* values, const std::vector<long>& visible,
                 int /*width*/, float* weights, float* out) {
  constexpr int kWidth = Vectors * kLanes;
  const __m512 scale = _mm512_set1_ps(1.0f / std::sqrt(static_cast<float>(kWidth)));
  __m512 scaled[Vectors];
  for (int v = 0; v < Vectors; ++v) scaled[v] = _mm512_mul_ps(_mm512_loadu_ps(query + v * kLanes), scale);
  const size_t count = visible.size();
  float most = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < count; ++i) {
    const float* key = keys + visible[i] * kWidth;
    __m512 sum = _mm512_mul_ps(scaled[0], _mm512_loadu_ps(key));
    for (int v = 1; v < Vectors; ++v) sum = _mm512_fmadd_ps(scaled[v], _mm512_loadu_ps(key + v * kLanes), sum);
    weights[i] = _mm512_reduce_add_ps(sum);
    most = std::max(most, weights[i]);
  }
  const __m512 inverse = _mm512_set1_ps(1.0f / exponentials(weights, count, most));
  __m512 total[Vectors];
  for (__m512& each : total) each = _mm512_setzero_ps();
  for (size_t i = 0; i < count; ++i) {
    const __m512 weight = _mm512_set1_ps(weights[i]);
    const float* value = values + visible[i] * kWidth;
    for (int v = 0; v < Vectors; ++v) total[v] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(value + v * kLanes), total[v]);
  }
  for (int v = 0; v < Vectors; ++v) _mm512_storeu_ps(out + v * kLanes, _mm512_mul_ps(total[v], inverse));
}

// The same for a head of any multiple of 16.
inline void attend_any_head(const float* query, const float* keys, const float* values, const std::vector<long>& visible,
                            int width, float* weights, float* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  const size_t count = visible.size();
  float most = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < count; ++i) {
    weights[i] = dot(query, keys + visible[i] * width, width) * scale;
    most = std::max(most, weights[i]);
  }
  const __m512 inverse = _mm512_set1_ps(1.0f / exponentials(weights, count, most));
  for (int column = 0; column < width; column += kLanes) {
    __m512 total = _mm512_setzero_ps();
    for (size_t i = 0; i < count; ++i) {
      const __m512 value = _mm512_loadu_ps(values + visible[i] * width + column);
      total = _mm512_fmadd_ps(_mm512_set1_ps(weights[i]), value, total);
    }
    _mm512_storeu_ps(out + column, _mm512_mul_ps(total, inverse));
  }
}

inline Attention attention_for(int width) {
  switch (width) {
    case 32: return attend_head<2>;
    case 64: return attend_head<4>;
    case 128: return attend_head<8>;
    default: return attend_any_head;
  }
}

}  // namespace peakplan
