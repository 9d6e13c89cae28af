// Products of int8 weights and int8 activations with AVX-512 VNNI.
//
// Weights have one scale an output channel; activations one a row and group of 64 inputs, which keeps outliers from
// costing their neighbours' precision. Sums inside a group are integers and exact; groups are added in order. So an
// output depends on nothing but its own row and channel: not on how many rows are multiplied, nor in which tiles.
#pragma once

#include <immintrin.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "vectors.h"

namespace peakplan {

constexpr int kGroup = 64;       // inputs that share an activation scale
constexpr int kDepth = 4;        // inputs that one VNNI instruction sums in each of its lanes
constexpr int kMostRows = 9;     // rows of a tile: their sums just fit the registers
constexpr int kBestRows = 7;     // most rows of each of several tiles: their scaled sums fit, too
constexpr int kFewRows = 5;      // up to these, the hardware reads ahead fast enough by itself
constexpr int kStrip = 32;       // outputs whose weights lie together: two registers
// Bytes of weights fetched into the second level cache before they are wanted, for more rows than a few: about a strip,
// so that memory works while a strip's weights, all of them cached, are multiplied.
constexpr size_t kAhead = 32768;
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
    madvise(data_, bytes, MADV_HUGEPAGE);
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
  const int8_t* integers(int row) const { return integers_.data() + static_cast<size_t>(row) * width_; }
  const float* scales(int row) const { return scales_.data() + static_cast<size_t>(row) * groups(); }
  // What the weights' offset of 128 adds to each group's sum, negated.
  const int32_t* offsets(int row) const { return offsets_.data() + static_cast<size_t>(row) * groups(); }

 private:
  void quantise_group(const float* values, int row, int group) {
    __m512 part[kGroup / kLanes];
    __m512 largest = _mm512_setzero_ps();
    for (int i = 0; i < kGroup / kLanes; ++i) {
      part[i] = _mm512_loadu_ps(values + group * kGroup + i * kLanes);
      largest = _mm512_max_ps(largest, _mm512_abs_ps(part[i]));
    }
    const float most = _mm512_reduce_max_ps(largest);
    const __m512 inverse = _mm512_set1_ps(most > 0 ? 127.0f / most : 0.0f);
    __m512i sum = _mm512_setzero_si512();
    int8_t* out = integers_.data() + static_cast<size_t>(row) * width_ + group * kGroup;
    for (int i = 0; i < kGroup / kLanes; ++i) {
      const __m512i integer = _mm512_cvtps_epi32(_mm512_mul_ps(part[i], inverse));
      sum = _mm512_add_epi32(sum, integer);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * kLanes), _mm512_cvtsepi32_epi8(integer));
    }
    const size_t at = static_cast<size_t>(row) * groups() + group;
    scales_[at] = most / 127.0f;
    offsets_[at] = -128 * _mm512_reduce_add_epi32(sum);
  }

  int width_ = 0;
  std::vector<int8_t> integers_;
  std::vector<float> scales_;
  std::vector<int32_t> offsets_;
};

// A weight [outputs, inputs], stored as unsigned bytes (integer + 128) in strips of 32 outputs, [strip][inputs / 4][32][4]:
// a product reads each strip from its first byte to its last, as fast as memory gives it.
class Matrix {
 public:
  Matrix() = default;
  // `outputs` is a multiple of 32, `inputs` one of 64.
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
      strip[(i / kDepth * kStrip + output % kStrip) * kDepth + i % kDepth] = static_cast<uint8_t>(integer + 128);
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
    __m512 total[Rows][2];
    for (auto& pair : total) pair[0] = pair[1] = _mm512_setzero_ps();
    for (int group = 0; group < activations.groups(); ++group) {
      __m512i sums[Rows][2];
      for (int r = 0; r < Rows; ++r) sums[r][0] = sums[r][1] = _mm512_set1_epi32(activations.offsets(tile.row + r)[group]);
      for (int k = group * kGroup; k < (group + 1) * kGroup; k += kDepth, line += kStrip * kDepth) {
        _mm_prefetch(reinterpret_cast<const char*>(line + ahead), _MM_HINT_T1);
        _mm_prefetch(reinterpret_cast<const char*>(line + ahead + 64), _MM_HINT_T1);
        const __m512i low = _mm512_load_si512(line), high = _mm512_load_si512(line + 64);
        for (int r = 0; r < Rows; ++r) {
          int32_t four;
          std::memcpy(&four, activations.integers(tile.row + r) + k, kDepth);
          const __m512i value = _mm512_set1_epi32(four);
          sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], low, value);
          sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], high, value);
        }
      }
      for (int r = 0; r < Rows; ++r) {
        const __m512 scale = _mm512_set1_ps(activations.scales(tile.row + r)[group]);
        for (int half = 0; half < 2; ++half)
          total[r][half] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][half]), scale, total[r][half]);
      }
    }
    for (int r = 0; r < Rows; ++r)
      for (int half = 0; half < 2; ++half) {
        const int channel = tile.strip * kStrip + half * kLanes;
        float* target = tile.out + static_cast<size_t>(tile.row + r) * outputs_ + channel;
        __m512 result = _mm512_mul_ps(total[r][half], _mm512_loadu_ps(scales_.data() + channel));
        if (tile.add) result = _mm512_add_ps(result, _mm512_loadu_ps(target));
        _mm512_storeu_ps(target, result);
      }
  }

  void multiply_tile(int height, const Tile& tile) const {
    switch (height) {
      case 1: return multiply_rows<1>(tile);
      case 2: return multiply_rows<2>(tile);
      case 3: return multiply_rows<3>(tile);
      case 4: return multiply_rows<4>(tile);
      case 5: return multiply_rows<5>(tile);
      case 6: return multiply_rows<6>(tile);
      case 7: return multiply_rows<7>(tile);
      case 8: return multiply_rows<8>(tile);
      default: return multiply_rows<kMostRows>(tile);
    }
  }

  int outputs_ = 0;
  int inputs_ = 0;
  Buffer<uint8_t> weights_;
  std::vector<float> scales_;
};

}  // namespace peakplan
