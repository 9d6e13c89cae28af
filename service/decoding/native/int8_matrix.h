// Products of int8 weights and int8 activations.
//
// Weights have one scale an output channel; activations one a row and group of 64 inputs, which keeps outliers from
// costing their neighbours' precision. Sums inside a group are integers and exact; groups are added in order. So an
// output depends on nothing but its own row and channel: not on how many rows are multiplied, nor in which tiles, nor by
// which instructions (dots.h).
#pragma once

#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "dots.h"
#include "lanes.h"

namespace peakplan {

constexpr int kGroup = 64;                    // inputs that share an activation scale
constexpr int kStrip = kBlocks * kLanes;      // outputs whose weights lie together
constexpr int kStepBytes = kStrip * kDepth;
constexpr int kCacheLine = 64;
constexpr int kStepsOfALine = kStepBytes < kCacheLine ? kCacheLine / kStepBytes : 1;
// Bytes of weights fetched into the first level cache before they are wanted: a strip of 32 outputs of 576 inputs, so that
// memory works while cached weights are multiplied with more rows.
constexpr size_t kAhead = 18432;
constexpr size_t kHugePage = size_t{2} << 20;

// Memory on huge pages where the system grants them: a forward reads all weights, page after page.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) {
    const size_t bytes = (count * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
    data_ = static_cast<T*>(aligned_alloc(kHugePage, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE  // Linux alone
    madvise(data_, bytes, MADV_HUGEPAGE);
#endif
  }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Buffer() { free(data_); }
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

// Rows of activations in int8: value = scale[row][group] * integer.
class Activations {
 public:
  void quantise(const float* values, long stride, int rows, int width) {
    width_ = width;
    integers_.resize(static_cast<size_t>(rows) * width);
    scales_.resize(static_cast<size_t>(rows) * groups());
    offsets_.resize(scales_.size());
    for (int row = 0; row < rows; ++row)
      for (int group = 0; group < groups(); ++group) quantise_group(values + row * stride, row, group);
  }
  int width() const { return width_; }
  int groups() const { return width_ / kGroup; }
  const Activation* integers(int row) const { return integers_.data() + static_cast<size_t>(row) * width_; }
  const float* scales(int row) const { return scales_.data() + static_cast<size_t>(row) * groups(); }
  // What the weights' offset adds to each group's sum, negated.
  const int32_t* offsets(int row) const { return offsets_.data() + static_cast<size_t>(row) * groups(); }

 private:
  void quantise_group(const float* values, int row, int group) {
    Floats lanes[kGroup / kLanes];
    Floats largest = set(0.0f);
    for (int i = 0; i < kGroup / kLanes; ++i) {
      lanes[i] = load(values + group * kGroup + i * kLanes);
      largest = maximum(largest, absolute(lanes[i]));
    }
    const float most = greatest(largest);
    const Floats inverse = set(most > 0 ? 127.0f / most : 0.0f);
    int32_t integers[kGroup];
    for (int i = 0; i < kGroup / kLanes; ++i) store(integers + i * kLanes, to_integer(lanes[i] * inverse));
    Activation* out = integers_.data() + static_cast<size_t>(row) * width_ + group * kGroup;
    int32_t total = 0;
    for (int i = 0; i < kGroup; ++i) {
      const int32_t integer = std::min(std::max(integers[i], -128), 127);  // beyond lies only what was no number
      out[i] = static_cast<Activation>(integer);
      total += integer;
    }
    const size_t at = static_cast<size_t>(row) * groups() + group;
    scales_[at] = most / 127.0f;
    offsets_[at] = -kOffset * total;
  }

  int width_ = 0;
  std::vector<Activation> integers_;
  std::vector<float> scales_;
  std::vector<int32_t> offsets_;
};

// A weight [outputs, inputs], stored as bytes (integer + kOffset) in strips, [strip][inputs / kDepth][kStrip][kDepth]: a
// product reads each strip from its first byte to its last, as fast as memory gives it.
class Matrix {
 public:
  Matrix() = default;
  // `outputs` is a multiple of 32 (of kStrip on any target), `inputs` one of 64.
  Matrix(int outputs, int inputs)
      : outputs_(outputs),
        inputs_(inputs),
        weights_(static_cast<size_t>(outputs) * inputs),
        scales_(static_cast<size_t>(outputs)) {}

  // Quantises `count` rows of float32 weights into the outputs from `first` on.
  void set_rows(int first, int count, const float* weights) {
    for (int row = 0; row < count; ++row) set_row(first + row, weights + static_cast<size_t>(row) * inputs_);
  }

  // out[row] (+)= activations[row] @ weights.T; `out` has `outputs` columns.
  void multiply(const Activations& activations, int rows, float* out, bool add) const {
    const int tiles = rows <= kMostRows ? 1 : (rows + kBestRows - 1) / kBestRows;  // of nearly the same height
    for (int strip = 0; strip < outputs_ / kStrip; ++strip)
      for (int tile = 0, row = 0; tile < tiles; ++tile) {
        const int height = rows / tiles + (tile < rows % tiles);
        multiply_tile(height, {activations, row, strip, rows > kFewRows && tile + 1 == tiles, out, add});
        row += height;
      }
  }

  int inputs() const { return inputs_; }

 private:
  void set_row(int output, const float* weights) {
    float most = 0;
    for (int i = 0; i < inputs_; ++i) most = std::max(most, std::fabs(weights[i]));
    const float inverse = most > 0 ? 127.0f / most : 0.0f;
    scales_[output] = most / 127.0f;
    uint8_t* strip = weights_.get() + static_cast<size_t>(output / kStrip) * inputs_ * kStrip;
    for (int i = 0; i < inputs_; ++i) {
      const int integer = static_cast<int>(std::lrint(weights[i] * inverse));
      strip[(i / kDepth * kStrip + output % kStrip) * kDepth + i % kDepth] = static_cast<uint8_t>(integer + kOffset);
    }
  }

  // What a tile multiplies: some rows and one strip of outputs; only the last of a strip's tiles reads on into the next.
  struct Tile {
    const Activations& activations;
    int row, strip;
    bool reads_ahead;
    float* out;
    bool add;
  };

  template <int Rows>
  void multiply_rows(const Tile& tile) const {
    const Activations& activations = tile.activations;
    const uint8_t* line = weights_.get() + static_cast<size_t>(tile.strip) * inputs_ * kStrip;
    const size_t ahead = tile.reads_ahead ? kAhead : 0;
    Floats total[Rows][kBlocks];
    for (auto& blocks : total)
      for (Floats& each : blocks) each = set(0.0f);
    for (int group = 0; group < activations.groups(); ++group) {
      Ints sums[Rows][kBlocks];
      for (int r = 0; r < Rows; ++r)
        for (Ints& each : sums[r]) each = set_integer(kOffset ? activations.offsets(tile.row + r)[group] : 0);
      for (int k = group * kGroup; k < (group + 1) * kGroup;) {
        for (int byte = 0; byte < kStepBytes; byte += kCacheLine)
          __builtin_prefetch(line + ahead + byte, 0, 3);
        for (int step = 0; step < kStepsOfALine; ++step, k += kDepth, line += kStepBytes) {
          Weights weights[kBlocks];
          for (int block = 0; block < kBlocks; ++block) weights[block] = load_weights(line + block * kLanes * kDepth);
          for (int r = 0; r < Rows; ++r) {
            const Inputs inputs = repeat(activations.integers(tile.row + r) + k);
            for (int block = 0; block < kBlocks; ++block) accumulate(sums[r][block], weights[block], inputs);
          }
        }
      }
      for (int r = 0; r < Rows; ++r) {
        const Floats scale = set(activations.scales(tile.row + r)[group]);
        for (int block = 0; block < kBlocks; ++block)
          total[r][block] = multiply_add(to_float(sums[r][block]), scale, total[r][block]);
      }
    }
    for (int r = 0; r < Rows; ++r)
      for (int block = 0; block < kBlocks; ++block) {
        const int channel = tile.strip * kStrip + block * kLanes;
        float* target = tile.out + static_cast<size_t>(tile.row + r) * outputs_ + channel;
        const Floats result = total[r][block] * load(scales_.data() + channel);
        store(target, tile.add ? result + load(target) : result);
      }
  }

  template <int Rows = kMostRows>
  void multiply_tile(int height, const Tile& tile) const {
    if constexpr (Rows == 1) return multiply_rows<1>(tile);
    else return height == Rows ? multiply_rows<Rows>(tile) : multiply_tile<Rows - 1>(height, tile);
  }

  int outputs_ = 0;
  int inputs_ = 0;
  Buffer<uint8_t> weights_;
  std::vector<float> scales_;
};

}  // namespace peakplan
