// Integer products of weights and activations, exact on every target, and how a target likes its weights laid out.
//
// A step multiplies kDepth inputs of sixteen outputs. Weights lie in memory as bytes, [step][16 outputs][kDepth inputs]; a
// row's activations as kDepth integers, which are repeated for every output. `narrow` stores 64 integers as activations,
// those beyond a byte as the nearest one (only what was no number lies there), and returns their sum where kOffset wants it.
#pragma once

#include <cstring>

#include "lanes.h"

namespace peakplan {

#if defined(__AVX2__) && !defined(__AVX512VNNI__)
// 32 integers as bytes, in their order: packing works in halves of a register, and the last step puts fours in order.
inline __m256i packed(const Ints& first, const Ints& second) {
  const __m256i low = _mm256_packs_epi32(first.part[0], first.part[1]);
  const __m256i high = _mm256_packs_epi32(second.part[0], second.part[1]);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
#endif

#if defined(__AVX512VNNI__)

constexpr const char* kTarget = "avx512vnni";
using Activation = int8_t;
constexpr int kDepth = 4;       // inputs of a step
constexpr int kOffset = 128;    // is added to weights: vpdpbusd wants one factor unsigned
constexpr int kBlocks = 2;      // sixteens of outputs of a strip
constexpr int kMostRows = 6;    // of a tile: their sums and their totals fit the registers
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
inline int32_t narrow(const Ints (&integers)[4], Activation* out) {
  const __m512i low = _mm512_packs_epi32(integers[0].part[0], integers[1].part[0]);
  const __m512i high = _mm512_packs_epi32(integers[2].part[0], integers[3].part[0]);
  // Packing works in quarters of a register: this puts fours in order.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
  _mm512_storeu_si512(out, bytes);
  return _mm512_reduce_add_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes));
}

#elif defined(__AVXVNNI__)

constexpr const char* kTarget = "avxvnni";
using Activation = int8_t;
constexpr int kDepth = 4;
constexpr int kOffset = 128;
constexpr int kBlocks = 1;
constexpr int kMostRows = 6;
constexpr int kFewRows = 1;

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
inline int32_t narrow(const Ints (&integers)[4], Activation* out) {
  __m256i sums = _mm256_setzero_si256();
  for (int i = 0; i < 4; i += 2) {
    const __m256i bytes = packed(integers[i], integers[i + 1]);
    sums = _mm256_dpbusd_avx_epi32(sums, _mm256_set1_epi8(1), bytes);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * kLanes), bytes);
  }
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}

#elif defined(__AVX2__)

// No instruction multiplies bytes without saturating, so bytes become words: exact, at half the products an instruction.
constexpr const char* kTarget = "avx2";
using Activation = int16_t;
constexpr int kDepth = 2;
constexpr int kOffset = 0;
constexpr int kBlocks = 1;
constexpr int kMostRows = 6;
constexpr int kFewRows = 1;

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
inline int32_t narrow(const Ints (&integers)[4], Activation* out) {
  for (int i = 0; i < 4; i += 2) {
    const __m256i bytes = packed(integers[i], integers[i + 1]);
    auto* words = reinterpret_cast<__m256i*>(out + i * kLanes);
    _mm256_storeu_si256(words, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(bytes)));
    _mm256_storeu_si256(words + 1, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(bytes, 1)));
  }
  return 0;
}

#elif defined(__ARM_FEATURE_DOTPROD)

constexpr const char* kTarget = "neon";
using Activation = int8_t;
constexpr int kDepth = 4;
constexpr int kOffset = 0;
constexpr int kBlocks = 1;
constexpr int kMostRows = 6;
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
inline int32_t narrow(const Ints (&integers)[4], Activation* out) {
  for (int i = 0; i < 4; ++i) {
    const IntPart(&part)[kParts] = integers[i].part;
    const int16x8_t low = vcombine_s16(vqmovn_s32(part[0]), vqmovn_s32(part[1]));
    const int16x8_t high = vcombine_s16(vqmovn_s32(part[2]), vqmovn_s32(part[3]));
    vst1q_s8(out + i * kLanes, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
  }
  return 0;
}

#else
#error "these kernels need AVX-512 VNNI, AVX-VNNI, AVX2, or NEON with dot products"
#endif

}  // namespace peakplan
