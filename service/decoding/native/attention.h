// Attention of the heads of one row that share keys, over the cache slots that the row sees, in the order given.
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

constexpr int kHeadsAtOnce = kParts == 1 ? 3 : 1;  // whose totals fit the registers

// The cache slots that a row sees, as distances in floats of their keys from the first slot's. Padded with the last one to
// sixteens.
struct Visible {
  std::vector<long> at;
  size_t count = 0;

  void add(long distance) {
    at.push_back(distance);
    ++count;
  }
  void pad() { at.resize((count + kLanes - 1) / kLanes * kLanes, at.empty() ? 0 : at.back()); }
};

// The heads of a row that share keys and values: queries [count, width], not yet rotated, and cosines and sines [2, width].
struct Heads {
  const float* queries;
  const float* rotary;
  int count, width;
};

// keys and values [positions, width] -> out [heads, width]; `weights` has room for the padded slots and one more, for each.
using Attention = void (*)(const Heads& heads, const float* keys, const float* values, const Visible& visible,
                           float* weights, float* out);

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

// Writes the scores and returns the greatest. `product(key)` gives a vector whose lanes' sum is the score of a key.
template <typename Product>
inline float score_all(const float* keys, const Visible& visible, float* scores, Product product) {
  constexpr size_t kFew = 4;  // are faster one by one
  Floats most = set(-std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kFew < visible.count; i += kLanes) {
    const long* at = visible.at.data() + i;
    const Floats sixteen = sums([&](int key) INLINED { return product(keys + at[key]); });
    store(scores + i, sixteen);
    most = maximum(most, sixteen);
  }
  float most_of_all = greatest(most);
  for (; i < visible.count; ++i) {
    scores[i] = sum(product(keys + visible.at[i]));
    most_of_all = std::max(most_of_all, scores[i]);
  }
  return most_of_all;
}

// The sums of values that some heads weigh, each value read once.
template <int Vectors, int Count>
inline void weigh(const float* values, const Visible& visible, const float* weights, const float* inverses, float* out) {
  const size_t padded = visible.at.size();
  Floats total[Count][Vectors];
  for (auto& head : total)
    for (Floats& each : head) each = set(0.0f);
  for (size_t i = 0; i < visible.count; ++i) {
    const float* value = values + visible.at[i];
    for (int head = 0; head < Count; ++head) {
      const Floats weight = set(weights[head * padded + i]);
      for (int v = 0; v < Vectors; ++v)
        total[head][v] = multiply_add(weight, load(value + v * kLanes), total[head][v]);
    }
  }
  for (int head = 0; head < Count; ++head) {
    const Floats inverse = set(inverses[head]);
    for (int v = 0; v < Vectors; ++v) store(out + (head * Vectors + v) * kLanes, total[head][v] * inverse);
  }
}

// Vectors: sixteens that a head fills. The head's part of everything stays in registers. All heads take a step before any
// takes the next one: what one waits for, another fills.
template <int Vectors>
void attend_heads(const Heads& heads, const float* keys, const float* values, const Visible& visible, float* weights,
                  float* out) {
  constexpr int kWidth = Vectors * kLanes;
  const size_t padded = visible.at.size();
  float* const inverses = weights + heads.count * padded;
  const Floats scale = set(1.0f / std::sqrt(static_cast<float>(kWidth)));
  for (int head = 0; head < heads.count; ++head) {
    alignas(64) float turned[kWidth];
    rotate(heads.queries + head * kWidth, heads.rotary, kWidth, turned);
    Floats query[Vectors];
    for (int v = 0; v < Vectors; ++v) query[v] = load(turned + v * kLanes) * scale;
    inverses[head] = score_all(keys, visible, weights + head * padded, [&](const float* key) INLINED {
      Floats product = query[0] * load(key);
      for (int v = 1; v < Vectors; ++v) product = multiply_add(query[v], load(key + v * kLanes), product);
      return product;
    });
  }
  for (int head = 0; head < heads.count; ++head)
    inverses[head] = 1.0f / exponentials(weights + head * padded, visible.count, inverses[head]);
  int head = 0;
  for (; head + kHeadsAtOnce <= heads.count; head += kHeadsAtOnce)
    weigh<Vectors, kHeadsAtOnce>(values, visible, weights + head * padded, inverses + head, out + head * kWidth);
  for (; head < heads.count; ++head)
    weigh<Vectors, 1>(values, visible, weights + head * padded, inverses + head, out + head * kWidth);
}

// The same for heads of any multiple of 16.
inline void attend_any_heads(const Heads& heads, const float* keys, const float* values, const Visible& visible,
                             float* weights, float* out) {
  const int width = heads.width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  std::vector<float> query(width);
  for (int head = 0; head < heads.count; ++head, out += width) {
    rotate(heads.queries + head * width, heads.rotary, width, query.data());
    float most = -std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < visible.count; ++i) {
      weights[i] = dot(query.data(), keys + visible.at[i], width) * scale;
      most = std::max(most, weights[i]);
    }
    const Floats inverse = set(1.0f / exponentials(weights, visible.count, most));
    for (int column = 0; column < width; column += kLanes) {
      Floats total = set(0.0f);
      for (size_t i = 0; i < visible.count; ++i)
        total = multiply_add(set(weights[i]), load(values + visible.at[i] + column), total);
      store(out + column, total * inverse);
    }
  }
}

inline Attention attention_for(int width) {
  switch (width) {
    case 32: return attend_heads<2>;
    case 64: return attend_heads<4>;
    case 128: return attend_heads<8>;
    default: return attend_any_heads;
  }
}

}  // namespace peakplan
