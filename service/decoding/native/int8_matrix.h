// Products of int8 weights and int8 activations.
//
// Weights have one scale an output channel; activations one a row and group of 64 inputs. Sums inside a group are integers
// and exact; groups are added in order. So an output depends on nothing but its own row and channel: not on how many rows
// are multiplied, nor in which tiles, nor by which instructions (dots.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "activations.h"
#include "buffer.h"
#include "dots.h"
#include "lanes.h"

namespace peakplan {

constexpr int kStrip = kBlocks * kLanes;  // outputs whose weights lie together
constexpr int kStepBytes = kStrip * kDepth;
constexpr int kCacheLine = 64;
constexpr int kStepsOfALine = kStepBytes < kCacheLine ? kCacheLine / kStepBytes : 1;
constexpr int kPanelRows = 8 * kMostRows;  // whose totals lie beside the weights in the first level cache
constexpr int kChunkGroups = 9;            // of 32 outputs: 18 KB, which with the rows' integers leave that cache room
// Bytes of weights that are fetched before they are wanted, into the second level cache: the first has too few places to
// wait for memory, and what it would hold for so long would drive out what tiles read again and again.
constexpr size_t kAhead = 32768;
constexpr int kSecondLevel = 2;

inline void fetch(const void* at) { __builtin_prefetch(at, 0, kSecondLevel); }

// A weight [outputs, inputs], stored as bytes (integer + kOffset) in strips, [inputs / kDepth][kStrip][kDepth] and then the
// scales of its outputs: a product reads each strip from its first byte to its last, as fast as memory gives it.
class Matrix {
 public:
  Matrix() = default;
  // `outputs` is a multiple of 32 (of kStrip on any target), `inputs` one of 64. `weights`, at a multiple of 64 bytes,
  // has room for `bytes` of them; without it, the matrix keeps its own.
  Matrix(int outputs, int inputs, uint8_t* weights = nullptr)
      : outputs_(outputs), inputs_(inputs), weights_(weights) {
    if (weights == nullptr) {
      own_ = Buffer<uint8_t>(bytes(outputs, inputs));
      weights_ = own_.get();
    }
  }

  static size_t bytes(int outputs, int inputs) { return outputs * (inputs + sizeof(float)); }

  // Quantises `count` rows of float32 weights into the outputs from `first` on.
  void set_rows(int first, int count, const float* weights) {
    for (int row = 0; row < count; ++row) set_row(first + row, weights + static_cast<size_t>(row) * inputs_);
  }

  // out[row] (+)= activations[row] @ weights.T; from a row of `out` to the next are `stride` floats. `before(strip)` is
  // called before each of strips().
  template <typename Before>
  void multiply(const Activations& activations, float* out, long stride, bool add, Before before) const {
    for (int strip = 0; strip < strips(); ++strip) {
      before(strip);
      for (int row = 0; row < activations.rows(); row += kPanelRows)
        multiply_panel({activations, row, std::min(kPanelRows, activations.rows() - row), strip, out, stride, add});
    }
  }
  void multiply(const Activations& activations, float* out, long stride, bool add) const {
    multiply(activations, out, stride, add, [](int) {});
  }

  int outputs() const { return outputs_; }
  int inputs() const { return inputs_; }
  int strips() const { return outputs_ / kStrip; }

 private:
  void set_row(int output, const float* weights) {
    float most = 0;
    for (int i = 0; i < inputs_; ++i) most = std::max(most, std::fabs(weights[i]));
    const float inverse = most > 0 ? 127.0f / most : 0.0f;
    uint8_t* strip = weights_ + bytes(output / kStrip * kStrip, inputs_);
    reinterpret_cast<float*>(strip + kStrip * inputs_)[output % kStrip] = most / 127.0f;
    for (int i = 0; i < inputs_; ++i) {
      const int integer = static_cast<int>(std::lrint(weights[i] * inverse));
      strip[(i / kDepth * kStrip + output % kStrip) * kDepth + i % kDepth] = static_cast<uint8_t>(integer + kOffset);
    }
  }

  // Rows that are multiplied with one strip of outputs.
  struct Panel {
    const Activations& activations;
    int row, rows, strip;
    float* out;
    long stride;
    bool add;
  };

  // A panel's rows are multiplied in tiles, whose sums fit the registers. Each chunk of a strip is multiplied with all of
  // them before the next one: memory gives a weight once, however many rows there are, and every tile but the first finds
  // it in the first level cache.
  void multiply_panel(const Panel& panel) const {
    alignas(kCacheLine) float totals[kPanelRows * kStrip];
    const int groups = inputs_ / kGroup;
    const int chunks = (groups + kChunkGroups - 1) / kChunkGroups;        // of nearly the same length
    const int tiles = (panel.rows + kMostRows - 1) / kMostRows;           // of nearly the same height
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int first = groups * chunk / chunks, last = groups * (chunk + 1) / chunks;
      for (int tile = 0, row = 0; tile < tiles; ++tile) {
        const int height = panel.rows / tiles + (tile < panel.rows % tiles);
        multiply_tile(height, {panel, panel.row + row, first, last, tile, tiles, totals + row * kStrip});
        row += height;
      }
    }
  }

  // Some rows of a panel and the groups [first, last) of its strip. Of `tiles` that read the same weights, each asks
  // memory for its share of those that follow, so that memory never waits for a tile that finds all it reads in the cache.
  struct Tile {
    const Panel& panel;
    int row, first, last, index, tiles;
    float* totals;  // of the groups before `first`
  };

  template <int Rows>
  void multiply_rows(const Tile& tile) const {
    const Activations& activations = tile.panel.activations;
    const int rows = activations.rows();
    const Activation* integers = activations.integers(tile.row, tile.first);
    const float* scales = activations.scales(tile.row, tile.first);
    const int32_t* offsets = activations.offsets(tile.row, tile.first);
    const uint8_t* line = weights_ + bytes(tile.panel.strip * kStrip, inputs_) + tile.first * kGroup * kStrip;
    Floats total[Rows][kBlocks];
    for (int r = 0; r < Rows; ++r)
      for (int block = 0; block < kBlocks; ++block)
        total[r][block] = tile.first == 0 ? set(0.0f) : load(tile.totals + (r * kBlocks + block) * kLanes);
    int until_share = rows > kFewRows && tile.panel.row == 0 ? tile.index : -1;  // in steps
    for (int group = tile.first; group < tile.last; ++group) {
      Ints sums[Rows][kBlocks];
      for (int r = 0; r < Rows; ++r)
        for (Ints& each : sums[r]) each = set_integer(kOffset ? offsets[r] : 0);
      for (int k = 0; k < kGroup;) {
        if (until_share-- == 0) {
          for (int byte = 0; byte < kStepBytes; byte += kCacheLine) fetch(line + kAhead + byte);
          until_share = tile.tiles - 1;
        }
        for (int step = 0; step < kStepsOfALine; ++step, k += kDepth, line += kStepBytes) {
          Weights weights[kBlocks];
          for (int block = 0; block < kBlocks; ++block) weights[block] = load_weights(line + block * kLanes * kDepth);
          for (int r = 0; r < Rows; ++r) {
            const Inputs inputs = repeat(integers + r * kGroup + k);
            for (int block = 0; block < kBlocks; ++block) accumulate(sums[r][block], weights[block], inputs);
          }
        }
      }
      for (int r = 0; r < Rows; ++r) {
        const Floats scale = set(scales[r]);
        for (int block = 0; block < kBlocks; ++block)
          total[r][block] = multiply_add(to_float(sums[r][block]), scale, total[r][block]);
      }
      integers += rows * kGroup, scales += rows, offsets += rows;
    }
    if (tile.last * kGroup == inputs_) return finish(tile, reinterpret_cast<const float*>(line), total);
    for (int r = 0; r < Rows; ++r)
      for (int block = 0; block < kBlocks; ++block) store(tile.totals + (r * kBlocks + block) * kLanes, total[r][block]);
  }

  template <int Rows>
  INLINED void finish(const Tile& tile, const float* scales, const Floats (&total)[Rows][kBlocks]) const {
    fetch(reinterpret_cast<const uint8_t*>(scales) + kAhead);
    fetch(reinterpret_cast<const uint8_t*>(scales + kStrip) - 1 + kAhead);
    for (int block = 0; block < kBlocks; ++block) {
      const int channel = tile.panel.strip * kStrip + block * kLanes;
      const Floats scale = load(scales + block * kLanes);
      float* target = tile.panel.out + tile.row * tile.panel.stride + channel;
      for (int r = 0; r < Rows; ++r, target += tile.panel.stride) {
        const Floats result = total[r][block] * scale;
        store(target, tile.panel.add ? result + load(target) : result);
      }
    }
  }

  template <int Rows = kMostRows>
  void multiply_tile(int height, const Tile& tile) const {
    if constexpr (Rows == 1) return multiply_rows<1>(tile);
    else return height == Rows ? multiply_rows<Rows>(tile) : multiply_tile<Rows - 1>(height, tile);
  }

  int outputs_ = 0;
  int inputs_ = 0;
  Buffer<uint8_t> own_;
  uint8_t* weights_ = nullptr;
};

}  // namespace peakplan
