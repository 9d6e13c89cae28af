// The weights of one layer of a model.
#pragma once

#include <cstdint>
#include <vector>

#include "int8_matrix.h"

namespace peakplan {

// What a layer's attention has beyond Llama's: each part may be absent (null in C, empty here). Biases are added to the
// products; a norm multiplies each query or key head, before it is rotated, by the inverse of its root mean square and by
// its weight [head_dim].
struct AttentionParts {
  const float *qkv_bias, *output_bias, *query_norm, *key_norm;  // [heads + 2 kv heads, head_dim], [H], [head_dim] twice
  float head_epsilon;
  int32_t rotates;  // 0: its queries and keys have no position
};

struct Layer {
  Matrix qkv, output, gate_up, down;
  float *attention_norm, *mlp_norm;
  std::vector<float> qkv_bias, output_bias, query_norm, key_norm;
  float head_epsilon = 0;
  bool rotates = true;
};

}  // namespace peakplan
