// Attention of one head of one row over the cache slots that the row sees, in the order given.
//
// The order is that of the row's own path, so sums come out alike whether the slots lie together or have rejected nodes
// between them.
#pragma once

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
  Floats total = set(0.0f);
  for (size_t i = 0; i < count; i += kLanes) {
    const Floats weight = first(exponential(load(scores + i) - set(most)), count - i);
    total = total + weight;
    store(scores + i, weight);
  }
  return sum(total);
}

// Vectors: sixteens that a head fills. The head's part of everything stays in registers.
template <int Vectors>
void attend_head(const float* query, const float* keys, const float* values, const std::vector<long>& visible,
                 int /*width*/, float* weights, float* out) {
  constexpr int kWidth = Vectors * kLanes;
  const Floats scale = set(1.0f / std::sqrt(static_cast<float>(kWidth)));
  Floats scaled[Vectors];
  for (int v = 0; v < Vectors; ++v) scaled[v] = load(query + v * kLanes) * scale;
  const size_t count = visible.size();
  float most = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < count; ++i) {
    const float* key = keys + visible[i] * kWidth;
    Floats product = scaled[0] * load(key);
    for (int v = 1; v < Vectors; ++v) product = multiply_add(scaled[v], load(key + v * kLanes), product);
    weights[i] = sum(product);
    most = std::max(most, weights[i]);
  }
  const Floats inverse = set(1.0f / exponentials(weights, count, most));
  Floats total[Vectors];
  for (Floats& each : total) each = set(0.0f);
  for (size_t i = 0; i < count; ++i) {
    const Floats weight = set(weights[i]);
    const float* value = values + visible[i] * kWidth;
    for (int v = 0; v < Vectors; ++v) total[v] = multiply_add(weight, load(value + v * kLanes), total[v]);
  }
  for (int v = 0; v < Vectors; ++v) store(out + v * kLanes, total[v] * inverse);
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
  const Floats inverse = set(1.0f / exponentials(weights, count, most));
  for (int column = 0; column < width; column += kLanes) {
    Floats total = set(0.0f);
    for (size_t i = 0; i < count; ++i)
      total = multiply_add(set(weights[i]), load(values + visible[i] * width + column), total);
    store(out + column, total * inverse);
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
