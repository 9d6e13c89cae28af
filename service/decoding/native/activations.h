// Rows of activations in int8, with one scale a row and group of 64 inputs, which keeps outliers from costing their
// neighbours' precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dots.h"
#include "folds.h"
#include "lanes.h"

namespace peakplan {

constexpr int kGroup = 64;  // inputs that share an activation scale

// value = scale * integer. Groups lie one after another and the rows of each together, as products read them: from a
// row's integers to the next one's it is the same small step, whatever the width.
class Activations {
 public:
  // `values(row, i)` gives sixteen of a row's values from the i-th on, and is asked for each once, in order: what
  // computes them needs no memory between.
  template <typename Values>
  void quantise(int rows, int width, Values values) {
    rows_ = rows;
    width_ = width;
    integers_.resize(static_cast<size_t>(rows) * width);
    scales_.resize(static_cast<size_t>(rows) * groups());
    offsets_.resize(scales_.size());
    for (int row = 0; row < rows; ++row)
      for (int group = 0; group < groups(); ++group) {
        Floats lanes[kGroup / kLanes];
        for (int i = 0; i < kGroup / kLanes; ++i) lanes[i] = values(row, group * kGroup + i * kLanes);
        quantise_group(lanes, at(row, group));
      }
  }
  void quantise(const float* values, int rows, int width) {
    quantise(rows, width, [=](int row, int i) { return load(values + static_cast<size_t>(row) * width + i); });
  }

  int rows() const { return rows_; }
  int groups() const { return width_ / kGroup; }
  const Activation* integers(int row, int group) const { return integers_.data() + at(row, group) * kGroup; }
  const float* scales(int row, int group) const { return scales_.data() + at(row, group); }
  // What the weights' offset adds to a group's sum, negated.
  const int32_t* offsets(int row, int group) const { return offsets_.data() + at(row, group); }

 private:
  size_t at(int row, int group) const { return static_cast<size_t>(group) * rows_ + row; }

  void quantise_group(const Floats (&values)[kGroup / kLanes], size_t at) {
    Floats largest = set(0.0f);
    for (const Floats& each : values) largest = maximum(largest, absolute(each));
    const float most = greatest(largest);
    const Floats inverse = set(most > 0 ? 127.0f / most : 0.0f);
    Ints integers[kGroup / kLanes];
    for (int i = 0; i < kGroup / kLanes; ++i) integers[i] = to_integer(values[i] * inverse);
    offsets_[at] = -kOffset * narrow(integers, integers_.data() + at * kGroup);
    scales_[at] = most / 127.0f;
  }

  int rows_ = 0;
  int width_ = 0;
  std::vector<Activation> integers_;
  std::vector<float> scales_;
  std::vector<int32_t> offsets_;
};

}  // namespace peakplan
