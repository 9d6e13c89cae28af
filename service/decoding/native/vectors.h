// Float arithmetic on rows whose width is a multiple of 16. Every function handles one row by itself, in one fixed
// order, so that a row's result never depends on the rows beside it.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>

namespace peakplan {

constexpr int kLanes = 16;  // float32 in a 512-bit register

inline float dot(const float* left, const float* right, int width) {
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < width; i += kLanes)
    sum = _mm512_fmadd_ps(_mm512_loadu_ps(left + i), _mm512_loadu_ps(right + i), sum);
  return _mm512_reduce_add_ps(sum);
}

// The same with the right hand side in bfloat16, the upper half of a float32.
inline float dot_bfloat16(const float* left, const uint16_t* right, int width) {
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < width; i += kLanes) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(right + i));
    const __m512 whole = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    sum = _mm512_fmadd_ps(_mm512_loadu_ps(left + i), whole, sum);
  }
  return _mm512_reduce_add_ps(sum);
}

// e^x to two units in the last place: 2^n times a polynomial in the rest (Cephes expf's range reduction).
inline __m512 exponential(__m512 x) {
  x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-87.0f)), _mm512_set1_ps(88.0f));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
  __m512 rest = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  rest = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), rest);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(c));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(rest, rest), rest), _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

// RMSNorm (Zhang & Sennrich, 2019) of one row.
inline void normalise(const float* row, const float* weight, float epsilon, int width, float* out) {
  const float scale = 1.0f / std::sqrt(dot(row, row, width) / static_cast<float>(width) + epsilon);
  for (int i = 0; i < width; i += kLanes) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(row + i), _mm512_set1_ps(scale));
    _mm512_storeu_ps(out + i, _mm512_mul_ps(scaled, _mm512_loadu_ps(weight + i)));
  }
}

// SwiGLU (Shazeer, 2020): gate / (1 + e^-gate) * up, over the gate.
inline void swiglu(float* gate, const float* up, int width) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int i = 0; i < width; i += kLanes) {
    const __m512 g = _mm512_loadu_ps(gate + i);
    const __m512 denominator = _mm512_add_ps(one, exponential(_mm512_sub_ps(_mm512_setzero_ps(), g)));
    _mm512_storeu_ps(gate + i, _mm512_mul_ps(_mm512_div_ps(g, denominator), _mm512_loadu_ps(up + i)));
  }
}

// One head turned by its position (RoFormer, arXiv 2104.09864): dimension i is paired with i + width / 2, and the
// first half of `sine` carries the minus sign.
inline void rotate(const float* head, const float* cosine, const float* sine, int width, float* out) {
  const int half = width / 2;
  for (int i = 0; i < half; ++i) out[i] = head[i] * cosine[i] + head[i + half] * sine[i];
  for (int i = half; i < width; ++i) out[i] = head[i] * cosine[i] + head[i - half] * sine[i];
}

}  // namespace peakplan
