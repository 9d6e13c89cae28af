// Float arithmetic on rows whose width is a multiple of 16. Every function handles one row by itself, in one fixed
// order, so that a row's result never depends on the rows beside it, nor on the processor.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "folds.h"
#include "lanes.h"

namespace peakplan {

inline float dot(const float* left, const float* right, int width) {
  Floats total = set(0.0f);
  for (int i = 0; i < width; i += kLanes) total = multiply_add(load(left + i), load(right + i), total);
  return sum(total);
}

// The same with the right hand side in bfloat16, the upper half of a float32.
inline float dot_bfloat16(const float* left, const uint16_t* right, int width) {
  Floats total = set(0.0f);
  for (int i = 0; i < width; i += kLanes) total = multiply_add(load(left + i), load_bfloat16(right + i), total);
  return sum(total);
}

// e^x to two units in the last place: 2^n times a polynomial in the rest (Cephes expf's range reduction).
inline Floats exponential(Floats x) {
  x = minimum(maximum(x, set(-87.0f)), set(88.0f));
  const Floats n = round(x * set(1.44269504f));
  Floats rest = negative_multiply_add(n, set(0.693359375f), x);
  rest = negative_multiply_add(n, set(-2.12194440e-4f), rest);
  Floats p = set(1.9875691500e-4f);
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = multiply_add(p, rest, set(c));
  p = multiply_add(p, rest * rest, rest) + set(1.0f);
  return times_power_of_two(p, n);
}

// x / (1 + e^-x), which its authors call SiLU (Elfwing et al., 2017); times `up` it is SwiGLU (Shazeer, 2020).
inline Floats silu(const Floats& x) { return x / (set(1.0f) + exponential(set(0.0f) - x)); }

// RMSNorm (Zhang & Sennrich, 2019) multiplies a row by its weight and by this.
inline float inverse_root_mean_square(const float* row, float epsilon, int width) {
  return 1.0f / std::sqrt(dot(row, row, width) / static_cast<float>(width) + epsilon);
}

// RMSNorm of one row, in place.
inline void normalise(float* row, const float* weight, float epsilon, int width) {
  const Floats scale = set(inverse_root_mean_square(row, epsilon, width));
  for (int i = 0; i < width; i += kLanes) store(row + i, load(row + i) * scale * load(weight + i));
}

// Adds a bias to each row; from a row to the next are `stride` floats.
inline void add_to_rows(float* at, long stride, int rows, const std::vector<float>& bias) {
  for (int row = 0; row < rows; ++row, at += stride)
    for (size_t i = 0; i < bias.size(); i += kLanes) store(at + i, load(at + i) + load(bias.data() + i));
}

// One head turned by its position (RoFormer, arXiv 2104.09864): dimension i is paired with i + width / 2. `rotary` holds
// the position's cosines and then its sines, of which the first half carries the minus sign.
inline void rotate(const float* head, const float* rotary, int width, float* out) {
  const int half = width / 2;
  const float* const sine = rotary + width;
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Floats low = load(head + i), high = load(head + half + i);
    store(out + i, low * load(rotary + i) + high * load(sine + i));
    store(out + half + i, high * load(rotary + half + i) + low * load(sine + half + i));
  }
  for (; i < half; ++i) {
    out[i] = head[i] * rotary[i] + head[half + i] * sine[i];
    out[half + i] = head[half + i] * rotary[half + i] + head[i] * sine[half + i];
  }
}

}  // namespace peakplan
