// The kernels as C functions, which native_llama.py and native_products.py call (model.h, int8_matrix.h, vectors.h).

#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>

#include "int8_matrix.h"
#include "model.h"
#include "vectors.h"

using peakplan::AttentionParts;
using peakplan::Batch;
using peakplan::Cache;
using peakplan::Model;
using peakplan::Sequence;
using peakplan::Shape;

// Nothing here throws through C: what fails answers null or -1, which is lack of memory, the only way to fail. Forwards
// that stopped answer 1; what they have written is of no use.
#pragma GCC visibility push(default)
extern "C" {

// The instructions that these kernels multiply with.
const char* peakplan_target() { return peakplan::kTarget; }

void* peakplan_create(const Shape* shape) {
  try {
    return new Model(*shape);
  } catch (const std::exception&) {
    return nullptr;
  }
}

int peakplan_set_layer(void* model, int index, const float* const* weights) {
  try {
    static_cast<Model*>(model)->set_layer(index, weights);
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

// What a layer's attention has beyond Llama's, after peakplan_set_layer.
int peakplan_set_attention(void* model, int index, const AttentionParts* parts) {
  try {
    static_cast<Model*>(model)->set_attention(index, *parts);
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

void peakplan_set_norm(void* model, const float* weight) { static_cast<Model*>(model)->set_norm(weight); }

// Has forwards stop `seconds` from now (infinite: never), or once this socket (-1: none) has something to read.
void peakplan_stop_when(void* model, int socket, double seconds) {
  static_cast<Model*>(model)->stop_when({socket, seconds < HUGE_VAL ? peakplan::monotonic_seconds() + seconds : HUGE_VAL});
}

int peakplan_forward(void* model, float* hidden, int rows, const float* rotary, const uint8_t* mask, float* cache,
                     long positions, long length) {
  try {
    const Sequence only{rows, mask, Cache{cache, positions, length}};
    return static_cast<Model*>(model)->forward(hidden, rotary, Batch{&only, 1}) ? 0 : 1;
  } catch (const std::exception&) {
    return -1;
  }
}

// One forward of several requests: hidden [all rows, H] and rotary [all rows, 2, head_dim], one request's after another's.
int peakplan_forward_batch(void* model, float* hidden, const float* rotary, const Sequence* sequences, int count) {
  try {
    return static_cast<Model*>(model)->forward(hidden, rotary, Batch{sequences, count}) ? 0 : 1;
  } catch (const std::exception&) {
    return -1;
  }
}

// The two halves of a forward that stops between layers: some layers in a row, and the final norm.
int peakplan_run_layers(void* model, float* hidden, int rows, const float* rotary, const uint8_t* mask, float* cache,
                        long positions, long length, int first, int last) {
  try {
    const Sequence only{rows, mask, Cache{cache, positions, length}};
    return static_cast<Model*>(model)->run_layers(hidden, rotary, Batch{&only, 1}, first, last) ? 0 : 1;
  } catch (const std::exception&) {
    return -1;
  }
}

void peakplan_normalise(const void* model, float* hidden, int rows) {
  static_cast<const Model*>(model)->final_norm(hidden, rows);
}

void peakplan_destroy(void* model) { delete static_cast<Model*>(model); }

// A matrix of its own, for products beside the model's, such as its Medusa heads.
void* peakplan_matrix_create(int outputs, int inputs, const float* weights) {
  try {
    auto matrix = std::make_unique<peakplan::Matrix>(outputs, inputs);
    matrix->set_rows(0, outputs, weights);
    return matrix.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

int peakplan_matrix_multiply(const void* matrix, const float* x, int rows, float* out) {
  try {
    const auto& weights = *static_cast<const peakplan::Matrix*>(matrix);
    peakplan::Activations activations;
    activations.quantise(x, rows, weights.inputs());
    weights.multiply(activations, out, weights.outputs(), false);
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

void peakplan_matrix_destroy(void* matrix) { delete static_cast<peakplan::Matrix*>(matrix); }

// Products of one float32 row [width] with `count` rows, by index, of a bfloat16 weight [any, width]: an LM head's
// logits of some tokens. `width` is a multiple of 16.
void peakplan_scores(const uint16_t* weight, int width, const float* row, const int64_t* indices, long count,
                     float* out) {
  for (long i = 0; i < count; ++i) out[i] = peakplan::dot_bfloat16(row, weight + indices[i] * width, width);
}
}
#pragma GCC visibility pop
