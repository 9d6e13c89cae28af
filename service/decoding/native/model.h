// One forward of a Llama-architecture model, of one request or several, each over its own static K/V cache: the layers
// between the embedding and the LM head, with int8 products and float32 for all else. The same contract as
// service/decoding/llama.py.
//
// A new node's hidden state depends on its own path alone, to the last bit: products are row by row (int8_matrix.h), and
// attention visits the keys that a node sees in their order on its path, wherever in the cache they lie. Speculative
// decoding therefore writes exactly the tokens of greedy decoding.

#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <vector>

#include "attention.h"
#include "buffer.h"
#include "int8_matrix.h"
#include "layer.h"
#include "vectors.h"

namespace peakplan {

struct Shape {
  int32_t hidden, intermediate, layers, heads, kv_heads, head_dim;
  float epsilon;
};

// Where the cache [layers, 2, kv heads, positions, head_dim] lies and how much of it is kept.
struct Cache {
  float* data;
  long positions;
  long length;
};

// One request's new rows, which see its kept positions and what its mask [rows, rows] says of each other.
struct Sequence {
  int32_t rows;
  const uint8_t* mask;
  Cache cache;
};

// The rows of all requests of a forward lie one after another.
struct Batch {
  const Sequence* sequences;
  int count;

  int rows() const {
    int all = 0;
    for (const Sequence& each : *this) all += each.rows;
    return all;
  }
  const Sequence* begin() const { return sequences; }
  const Sequence* end() const { return sequences + count; }
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
      : shape_(shape), layers_(shape.layers), norm_(shape.hidden), attention_(attention_for(shape.head_dim)) {
    const int hidden = shape.hidden, keys = shape.kv_heads * shape.head_dim;
    // Everything in the order in which a forward reads it.
    const size_t of_norm = hidden * sizeof(float), of_qkv = Matrix::bytes(queries() + 2 * keys, hidden);
    const size_t of_output = Matrix::bytes(hidden, queries()), of_down = Matrix::bytes(hidden, shape.intermediate);
    const size_t of_gate_up = Matrix::bytes(2 * shape.intermediate, hidden);
    all_weights_ = Buffer<uint8_t>(shape.layers * (2 * of_norm + of_qkv + of_output + of_gate_up + of_down));
    uint8_t* weights = all_weights_.get();
    for (Layer& layer : layers_) {
      layer.attention_norm = reinterpret_cast<float*>(weights);
      layer.qkv = Matrix(queries() + 2 * keys, hidden, weights += of_norm);
      layer.output = Matrix(hidden, queries(), weights += of_qkv);
      layer.mlp_norm = reinterpret_cast<float*>(weights += of_output);
      layer.gate_up = Matrix(2 * shape.intermediate, hidden, weights += of_norm);
      layer.down = Matrix(hidden, shape.intermediate, weights += of_gate_up);
      weights += of_down;
    }
  }

  void set_layer(int index, const float* const weights[9]) {
    const int hidden = shape_.hidden, keys = shape_.kv_heads * shape_.head_dim;
    Layer& layer = layers_[index];
    layer.qkv.set_rows(0, queries(), weights[0]);
    layer.qkv.set_rows(queries(), keys, weights[1]);
    layer.qkv.set_rows(queries() + keys, keys, weights[2]);
    layer.output.set_rows(0, hidden, weights[3]);
    for (int i = 0; i < shape_.intermediate; i += kLanes) {  // sixteen gates, then what they let through
      layer.gate_up.set_rows(2 * i, kLanes, weights[4] + static_cast<size_t>(i) * hidden);
      layer.gate_up.set_rows(2 * i + kLanes, kLanes, weights[5] + static_cast<size_t>(i) * hidden);
    }
    layer.down.set_rows(0, hidden, weights[6]);
    std::copy_n(weights[7], hidden, layer.attention_norm);
    std::copy_n(weights[8], hidden, layer.mlp_norm);
  }

  void set_attention(int index, const AttentionParts& parts) {
    const auto copy = [](const float* from, size_t count) {
      return from == nullptr ? std::vector<float>() : std::vector<float>(from, from + count);
    };
    Layer& layer = layers_[index];
    layer.qkv_bias = copy(parts.qkv_bias, queries() + 2 * shape_.kv_heads * shape_.head_dim);
    layer.output_bias = copy(parts.output_bias, shape_.hidden);
    layer.query_norm = copy(parts.query_norm, shape_.head_dim);
    layer.key_norm = copy(parts.key_norm, shape_.head_dim);
    layer.head_epsilon = parts.head_epsilon;
    layer.rotates = parts.rotates != 0;
  }

  void set_norm(const float* weight) { norm_.assign(weight, weight + shape_.hidden); }

  void stop_when(Stop stop) { stop_ = stop; }

  // hidden [rows, H]: embeddings in, final-norm hidden states out; false where it stopped before.
  bool forward(float* hidden, const float* rotary, Batch batch) {
    if (!run_layers(hidden, rotary, batch, 0, shape_.layers)) return false;
    final_norm(hidden, batch.rows());
    return true;
  }

  void final_norm(float* hidden, int rows) const {
    for (int row = 0; row < rows; ++row)
      normalise(hidden + static_cast<size_t>(row) * shape_.hidden, norm_.data(), shape_.epsilon, shape_.hidden);
  }

  // hidden [rows, H], in place: through the layers from `first` to before `last`; false where it stopped between them.
  bool run_layers(float* hidden, const float* rotary, Batch batch, int first, int last) {
    const int rows = batch.rows();
    prepare(rows, batch);
    for (int index = first; index < last; ++index) {
      if (stop_.is_due()) return false;
      const Layer& layer = layers_[index];
      quantise_normal(hidden, layer.attention_norm, rows);
      layer.qkv.multiply(quantised_, wide_.data(), wide_stride_, false, [&](int strip) INLINED {
        fetch_share(index, batch, strip, layer.qkv.strips());
      });
      complete_qkv(layer, rows);
      attend(index, rotary, batch);
      quantised_.quantise(attended_.data(), rows, queries());
      layer.output.multiply(quantised_, hidden, shape_.hidden, true);
      if (!layer.output_bias.empty()) add_to_rows(hidden, shape_.hidden, rows, layer.output_bias);
      quantise_normal(hidden, layer.mlp_norm, rows);
      layer.gate_up.multiply(quantised_, wide_.data(), wide_stride_, false);
      quantised_.quantise(rows, shape_.intermediate, [this](int row, int i) {
        const float* gate = wide_.data() + row * wide_stride_ + 2 * i;
        return silu(load(gate)) * load(gate + kLanes);
      });
      layer.down.multiply(quantised_, hidden, shape_.hidden, true);
    }
    return true;
  }

 private:
  int queries() const { return shape_.heads * shape_.head_dim; }

  // Scratch for `rows`, and the cache slots that each row sees, in ascending order: the kept ones, then its own path.
  void prepare(int rows, Batch batch) {
    const int qkv = queries() + 2 * shape_.kv_heads * shape_.head_dim;
    // Not a multiple of 4,096 bytes: rows would lie in the same few lines of the first level cache.
    wide_stride_ = std::max(qkv, 2 * shape_.intermediate) + kLanes;
    wide_.resize(static_cast<size_t>(rows) * wide_stride_);
    inverse_.resize(rows);
    if (still_.empty()) {  // turns by no angle: cosines of 1, sines of 0
      still_.assign(2 * shape_.head_dim, 0.0f);
      std::fill_n(still_.begin(), shape_.head_dim, 1.0f);
    }
    attended_.resize(static_cast<size_t>(rows) * queries());
    visible_.assign(rows, {});
    size_t most = 0;  // slots that a row sees, padded
    Visible* visible = visible_.data();
    for (const Sequence& each : batch)
      for (int row = 0; row < each.rows; ++row, ++visible) {
        visible->at.reserve(each.cache.length + each.rows + kLanes);
        for (long slot = 0; slot < each.cache.length; ++slot) visible->add(slot * shape_.head_dim);
        for (int other = 0; other < each.rows; ++other)
          if (each.mask[static_cast<size_t>(row) * each.rows + other])
            visible->add((each.cache.length + other) * shape_.head_dim);
        visible->pad();
        most = std::max(most, visible->at.size());
      }
    weights_.resize(shape_.heads / shape_.kv_heads * (most + 1));
  }

  // Each row's RMSNorm, in int8.
  void quantise_normal(const float* hidden, const float* weight, int rows) {
    const size_t width = shape_.hidden;
    for (size_t i = 0; i < width; i += kCacheLine / sizeof(float))
      fetch(reinterpret_cast<const uint8_t*>(weight + i) + kAhead);
    for (int row = 0; row < rows; ++row)
      inverse_[row] = inverse_root_mean_square(hidden + row * width, shape_.epsilon, shape_.hidden);
    quantised_.quantise(rows, shape_.hidden, [=](int row, int i) {
      return load(hidden + row * width + i) * set(inverse_[row]) * load(weight + i);
    });
  }

  // The queries, keys and values in wide_, with the layer's bias and norms, where it has them.
  void complete_qkv(const Layer& layer, int rows) {
    if (!layer.qkv_bias.empty()) add_to_rows(wide_.data(), wide_stride_, rows, layer.qkv_bias);
    if (layer.query_norm.empty()) return;
    const int width = shape_.head_dim;
    for (int row = 0; row < rows; ++row) {
      float* head = wide_.data() + row * wide_stride_;
      for (int i = 0; i < shape_.heads + shape_.kv_heads; ++i, head += width)
        normalise(head, (i < shape_.heads ? layer.query_norm : layer.key_norm).data(), layer.head_epsilon, width);
    }
  }

  // Asks memory for one of `shares` parts of a layer's keys and values, kept and new: all weights have passed through the
  // caches since they were used. Part by part, for memory forgets what it is asked for faster than it can give.
  void fetch_share(int index, Batch batch, int share, int shares) const {
    for (const Sequence& each : batch) {
      const long all = (each.cache.length + each.rows) * shape_.head_dim;
      const long first = all * share / shares, last = all * (share + 1) / shares;
      const float* at = keys_of(index, each.cache);
      for (int head = 0; head < 2 * shape_.kv_heads; ++head, at += each.cache.positions * shape_.head_dim)
        for (long i = first; i < last; i += kCacheLine / sizeof(float)) fetch(at + i);
    }
  }

  float* keys_of(int index, Cache cache) const {
    return cache.data + index * 2L * shape_.kv_heads * cache.positions * shape_.head_dim;
  }

  // Writes the new keys and values, then attends: wide_ [rows, qkv] -> attended_ [rows, heads x head_dim].
  void attend(int index, const float* rotary, Batch batch) {
    int first = 0;
    for (const Sequence& each : batch) {
      attend(index, rotary, each, first);
      first += each.rows;
    }
  }

  // The same for one sequence, whose rows are those from `first` on.
  void attend(int index, const float* rotary, const Sequence& sequence, int first) {
    const int width = shape_.head_dim, last = first + sequence.rows;
    const long turn = layers_[index].rotates ? 2L * width : 0;  // from a row's angles to the next one's
    if (turn == 0) rotary = still_.data();
    const long head_stride = sequence.cache.positions * width;
    float* const keys = keys_of(index, sequence.cache);
    float* const values = keys + shape_.kv_heads * head_stride;
    const int shared = shape_.heads / shape_.kv_heads;
    for (int row = first; row < last; ++row) {
      const float* fresh = wide_.data() + row * wide_stride_ + queries();
      const long slot = (sequence.cache.length + row - first) * width;
      for (int head = 0; head < shape_.kv_heads; ++head, fresh += width) {
        rotate(fresh, rotary + row * turn, width, keys + head * head_stride + slot);
        std::memcpy(values + head * head_stride + slot, fresh + shape_.kv_heads * width, width * sizeof(float));
      }
    }
    for (int head = 0; head < shape_.kv_heads; ++head)  // whose keys and values then stay in the first level cache
      for (int row = first; row < last; ++row) {
        const long query = head * shared * width, at = head * head_stride;
        const Heads heads{wide_.data() + row * wide_stride_ + query, rotary + row * turn, shared, width};
        float* out = attended_.data() + static_cast<size_t>(row) * queries() + query;
        attention_(heads, keys + at, values + at, visible_[row], weights_.data(), out);
      }
  }

  Shape shape_;
  Buffer<uint8_t> all_weights_;
  std::vector<Layer> layers_;
  std::vector<float> norm_;
  Activations quantised_;
  Attention attention_;
  Stop stop_;
  long wide_stride_ = 0;
  std::vector<float> inverse_, wide_, attended_, weights_, still_;
  std::vector<Visible> visible_;
};

}  // namespace peakplan
