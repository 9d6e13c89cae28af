// Integer products of weights and activations, exact on every target, and how a target likes its weights laid out.
//
// A step multiplies kDepth inputs of sixteen outputs. Weights lie in memory as bytes, [step][16 outputs][kDepth inputs]; a
// row's activations as kDepth integers, which are repeated for every output.
#pragma once

#include <cstring>

#include "lanes.h"

namespace peakplan {

#if defined(__AVX512VNNI__)

constexpr const char* kTarget = "avx512vnni";
using Activation = int8_t;
constexpr int kDepth = 4;       // inputs of a step
constexpr int kOffset = 128;    // is added to weights: vpdpbusd wants one factor unsigned
constexpr int kBlocks = 2;      // sixteens of outputs of a strip
constexpr int kMostRows = 9;    // of a tile: their sums just fit the registers
constexpr int kBestRows = 7;    // most rows of each of several tiles: their scaled sums fit, too
constexpr int kFewRows = 5;     // up to these, the hardware reads ahead fast enough by itself

using Weights = __m512i;
using Inputs = __m512i;
inline Weights load_weights(const uint8_t* at) { return _mm512_load_si512(at); }
inline Inputs repeat(const Activation* at) {
  int32_t four;
  std::memcpy(&four, at, sizeof(four));
  return _mm512_set1_epi32(four);
}
inline void accumulate(Ints& sums, Weights weights, Inputs inputs) {
  sums.part[0] = _mm512_dpbusd_epi32(sums.part[0], weights, inputs);
}

#elif defined(__AVXVNNI__)

constexpr const char* kTarget = "avxvnni";
using Activation = int8_t;
constexpr int kDepth = 4;
constexpr int kOffset = 128;
constexpr int kBlocks = 1;
constexpr int kMostRows = 6;
constexpr int kBestRows = 6;
constexpr int kFewRows = 0;

struct Weights {
  __m256i part[2];
};
using Inputs = __m256i;
inline Weights load_weights(const uint8_t* at) {
  const auto* lines = reinterpret_cast<const __m256i*>(at);
  return {{_mm256_load_si256(lines), _mm256_load_si256(lines + 1)}};
}
inline Inputs repeat(const Activation* at) {
  int32_t four;
  std::memcpy(&four, at, sizeof(four));
  return _mm256_set1_epi32(four);
}
inline void accumulate(Ints& sums, const Weights& weights, Inputs inputs) {
  for (int p = 0; p < kParts; ++p) sums.part[p] = _mm256_dpbusd_avx_epi32(sums.part[p], weights.part[p], inputs);
}

#elif defined(__AVX2__)

// No instruction multiplies bytes without saturating, so bytes become words: exact, at half the products an instruction.
constexpr const char* kTarget = "avx2";
using Activation = int16_t;
constexpr int kDepth = 2;
constexpr int kOffset = 0;
constexpr int kBlocks = 1;
constexpr int kMostRows = 6;
constexpr int kBestRows = 6;
constexpr int kFewRows = 0;

struct Weights {
  __m256i part[2];
};
using Inputs = __m256i;
inline Weights load_weights(const uint8_t* at) {
  const auto* halves = reinterpret_cast<const __m128i*>(at);
  return {{_mm256_cvtepi8_epi16(_mm_load_si128(halves)), _mm256_cvtepi8_epi16(_mm_load_si128(halves + 1))}};
}
inline Inputs repeat(const Activation* at) {
  int32_t two;
  std::memcpy(&two, at, sizeof(two));
  return _mm256_set1_epi32(two);
}
inline void accumulate(Ints& sums, const Weights& weights, Inputs inputs) {
  for (int p = 0; p < kParts; ++p)
    sums.part[p] = _mm256_add_epi32(sums.part[p], _mm256_madd_epi16(weights.part[p], inputs));
}

#elif defined(__ARM_FEATURE_DOTPROD)

constexpr const char* kTarget = "neon";
using Activation = int8_t;
constexpr int kDepth = 4;
constexpr int kOffset = 0;
constexpr int kBlocks = 1;
constexpr int kMostRows = 6;
constexpr int kBestRows = 6;
constexpr int kFewRows = 0;

struct Weights {
  int8x16_t part[4];
};
using Inputs = int8x16_t;
inline Weights load_weights(const uint8_t* at) {
  const auto* bytes = reinterpret_cast<const int8_t*>(at);
  return {{vld1q_s8(bytes), vld1q_s8(bytes + 16), vld1q_s8(bytes + 32), vld1q_s8(bytes + 48)}};
}
inline Inputs repeat(const Activation* at) {
  int32_t four;
  std::memcpy(&four, at, sizeof(four));
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
inline void accumulate(Ints& sums, const Weights& weights, Inputs inputs) {
  for (int p = 0; p < kParts; ++p) sums.part[p] = vdotq_s32(sums.part[p], weights.part[p], inputs);
}

#else
#error "these kernels need AVX-512 VNNI, AVX-VNNI, AVX2, or NEON with dot products"
#endif

}  // namespace peakplan
