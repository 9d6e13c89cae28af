// One forward of a Llama-architecture model, batch 1, over a static K/V cache: the layers between the embedding and the
// LM head, with int8 products and float32 for all else. The same contract as service/decoding/llama.py.
//
// A new node's hidden state depends on its own path alone, to the last bit: products are row by row (int8_matrix.h), and
// attention visits the keys that a node sees in their order on its path, wherever in the cache they lie. Speculative
// decoding therefore writes exactly the tokens of greedy decoding.

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <vector>

#include "attention.h"
#include "int8_matrix.h"
#include "vectors.h"

namespace peakplan {
namespace {

struct Shape {
  int32_t hidden, intermediate, layers, heads, kv_heads, head_dim;
  float epsilon;
};

struct Layer {
  Matrix qkv, output, gate_up, down;
  std::vector<float> attention_norm, mlp_norm;
};

// Where the cache [layers, 2, kv heads, positions, head_dim] lies and how much of it is kept.
struct Cache {
  float* data;
  long positions;
  long length;
};

inline double monotonic_seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// When forwards stop between two layers: at a time, or once a socket has something to read or its other end is gone.
struct Stop {
  int socket = -1;  // none
  double at = HUGE_VAL;

  bool is_due() const {
    if (at < HUGE_VAL && monotonic_seconds() >= at) return true;
    if (socket < 0) return false;
    char byte;
    return recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR);
  }
};

class Model {
 public:
  explicit Model(const Shape& shape)
      : shape_(shape), layers_(shape.layers), norm_(shape.hidden), attention_(attention_for(shape.head_dim)) {}

  void set_layer(int index, const float* const weights[9]) {
    const auto [hidden, intermediate, layers, heads, kv_heads, head_dim, epsilon] = shape_;
    const int queries = heads * head_dim, keys = kv_heads * head_dim;
    Layer& layer = layers_[index];
    layer.qkv = Matrix(queries + 2 * keys, hidden);
    layer.qkv.set_rows(0, queries, weights[0]);
    layer.qkv.set_rows(queries, keys, weights[1]);
    layer.qkv.set_rows(queries + keys, keys, weights[2]);
    layer.output = Matrix(hidden, queries);
    layer.output.set_rows(0, hidden, weights[3]);
    layer.gate_up = Matrix(2 * intermediate, hidden);
    layer.gate_up.set_rows(0, intermediate, weights[4]);
    layer.gate_up.set_rows(intermediate, intermediate, weights[5]);
    layer.down = Matrix(hidden, intermediate);
    layer.down.set_rows(0, hidden, weights[6]);
    layer.attention_norm.assign(weights[7], weights[7] + hidden);
    layer.mlp_norm.assign(weights[8], weights[8] + hidden);
  }

  void set_norm(const float* weight) { norm_.assign(weight, weight + shape_.hidden); }

  void stop_when(Stop stop) { stop_ = stop; }

  // hidden [rows, H]: embeddings in, final-norm hidden states out; false where it stopped before.
  bool forward(float* hidden, int rows, const float* rotary, const uint8_t* mask, Cache cache) {
    if (!run_layers(hidden, rows, rotary, mask, cache, 0, shape_.layers)) return false;
    final_norm(hidden, rows);
    return true;
  }

  void final_norm(float* hidden, int rows) const { normalise_rows(hidden, norm_.data(), rows, hidden); }

  // hidden [rows, H], in place: through the layers from `first` to before `last`; false where it stopped between them.
  bool run_layers(float* hidden, int rows, const float* rotary, const uint8_t* mask, Cache cache, int first, int last) {
    prepare(rows, mask, cache.length);
    for (int index = first; index < last; ++index) {
      if (stop_.is_due()) return false;
      const Layer& layer = layers_[index];
      normalise_rows(hidden, layer.attention_norm.data(), rows, normal_.data());
      quantised_.quantise(normal_.data(), shape_.hidden, rows, shape_.hidden);
      layer.qkv.multiply(quantised_, rows, wide_.data(), false);
      attend(index, rows, rotary, cache);
      quantised_.quantise(attended_.data(), queries(), rows, queries());
      layer.output.multiply(quantised_, rows, hidden, true);
      normalise_rows(hidden, layer.mlp_norm.data(), rows, normal_.data());
      quantised_.quantise(normal_.data(), shape_.hidden, rows, shape_.hidden);
      layer.gate_up.multiply(quantised_, rows, wide_.data(), false);
      const long stride = 2L * shape_.intermediate;
      for (int row = 0; row < rows; ++row)
        swiglu(wide_.data() + row * stride, wide_.data() + row * stride + shape_.intermediate, shape_.intermediate);
      quantised_.quantise(wide_.data(), stride, rows, shape_.intermediate);
      layer.down.multiply(quantised_, rows, hidden, true);
    }
    return true;
  }

 private:
  int queries() const { return shape_.heads * shape_.head_dim; }

  // Scratch for `rows`, and the cache slots that each row sees, in ascending order: the kept ones, then its own path.
  void prepare(int rows, const uint8_t* mask, long cached) {
    const int qkv = queries() + 2 * shape_.kv_heads * shape_.head_dim;
    normal_.resize(static_cast<size_t>(rows) * shape_.hidden);
    wide_.resize(static_cast<size_t>(rows) * std::max(qkv, 2 * shape_.intermediate));
    attended_.resize(static_cast<size_t>(rows) * queries());
    visible_.assign(rows, {});
    for (int row = 0; row < rows; ++row) {
      visible_[row].reserve(cached + rows);
      for (long slot = 0; slot < cached; ++slot) visible_[row].push_back(slot);
      for (int other = 0; other < rows; ++other)
        if (mask[static_cast<size_t>(row) * rows + other]) visible_[row].push_back(cached + other);
    }
    weights_.resize((cached + rows + kLanes - 1) / kLanes * kLanes);
  }

  void normalise_rows(const float* in, const float* weight, int rows, float* out) const {
    for (int row = 0; row < rows; ++row) {
      const size_t at = static_cast<size_t>(row) * shape_.hidden;
      normalise(in + at, weight, shape_.epsilon, shape_.hidden, out + at);
    }
  }

  // Writes the new keys and values, then attends: wide_ [rows, qkv] -> attended_ [rows, heads x head_dim].
  void attend(int index, int rows, const float* rotary, Cache cache) {
    const int width = shape_.head_dim;
    const long head_stride = cache.positions * width;
    float* keys = cache.data + index * 2L * shape_.kv_heads * head_stride;
    float* values = keys + shape_.kv_heads * head_stride;
    const long qkv = queries() + 2L * shape_.kv_heads * width;
    for (int row = 0; row < rows; ++row) {
      const float* cosine = rotary + row * 2L * width;
      const float* fresh = wide_.data() + row * qkv + queries();
      const long slot = (cache.length + row) * width;
      for (int head = 0; head < shape_.kv_heads; ++head, fresh += width) {
        rotate(fresh, cosine, cosine + width, width, keys + head * head_stride + slot);
        std::memcpy(values + head * head_stride + slot, fresh + shape_.kv_heads * width, width * sizeof(float));
      }
    }
    const int shared = shape_.heads / shape_.kv_heads;
    query_.resize(shared * width);
    for (int row = 0; row < rows; ++row) {
      const float* cosine = rotary + row * 2L * width;
      for (int head = 0; head < shape_.kv_heads; ++head) {
        const long first = head * shared * width;
        for (int i = 0; i < shared; ++i)
          rotate(wide_.data() + row * qkv + first + i * width, cosine, cosine + width, width, &query_[i * width]);
        float* out = attended_.data() + static_cast<size_t>(row) * queries() + first;
        const long at = head * head_stride;
        for (int i = 0; i < shared; ++i)
          attention_(&query_[i * width], keys + at, values + at, visible_[row], width, weights_.data(), out + i * width);
      }
    }
  }

  Shape shape_;
  std::vector<Layer> layers_;
  std::vector<float> norm_;
  Activations quantised_;
  Attention attention_;
  Stop stop_;
  std::vector<float> normal_, wide_, attended_, query_, weights_;
  std::vector<std::vector<long>> visible_;
};

}  // namespace
}  // namespace peakplan

using peakplan::Cache;
using peakplan::Model;
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

void peakplan_set_norm(void* model, const float* weight) { static_cast<Model*>(model)->set_norm(weight); }

// Has forwards stop `seconds` from now (infinite: never), or once this socket (-1: none) has something to read.
void peakplan_stop_when(void* model, int socket, double seconds) {
  static_cast<Model*>(model)->stop_when({socket, seconds < HUGE_VAL ? peakplan::monotonic_seconds() + seconds : HUGE_VAL});
}

int peakplan_forward(void* model, float* hidden, int rows, const float* rotary, const uint8_t* mask, float* cache,
                     long positions, long length) {
  try {
    return static_cast<Model*>(model)->forward(hidden, rows, rotary, mask, Cache{cache, positions, length}) ? 0 : 1;
  } catch (const std::exception&) {
    return -1;
  }
}

// The two halves of a forward that stops between layers: some layers in a row, and the final norm.
int peakplan_run_layers(void* model, float* hidden, int rows, const float* rotary, const uint8_t* mask, float* cache,
                        long positions, long length, int first, int last) {
  try {
    const Cache slots{cache, positions, length};
    return static_cast<Model*>(model)->run_layers(hidden, rows, rotary, mask, slots, first, last) ? 0 : 1;
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
    activations.quantise(x, weights.inputs(), rows, weights.inputs());
    weights.multiply(activations, rows, out, false);
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
