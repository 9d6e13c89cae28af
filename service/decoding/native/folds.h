// All sixteen lanes folded into one, in one fixed tree: lanes eight apart, then four, two and one apart,
//
//   a[i] = x[i] + x[i + 8]   b[i] = a[i] + a[i + 4]   c[i] = b[i] + b[i + 2]   sum = c[0] + c[1]
//
// which is what GCC makes of _mm512_reduce_add_ps; that intrinsic itself promises no order (Clang's is free to choose).
#pragma once

#include "lanes.h"

namespace peakplan {

#if defined(__AVX512F__) || defined(__AVX2__)
template <typename Fold8, typename Fold4>
inline float fold(const Floats& a, Fold8 fold8, Fold4 fold4) {
#if defined(__AVX512F__)
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.part[0]), 1));
  const __m256 eight = fold8(_mm512_castps512_ps256(a.part[0]), high);
#else
  const __m256 eight = fold8(a.part[0], a.part[1]);
#endif
  const __m128 four = fold4(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = fold4(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(fold4(two, _mm_shuffle_ps(two, two, 1)));
}
inline float sum(const Floats& a) {
  return fold(
      a, [](__m256 x, __m256 y) { return _mm256_add_ps(x, y); }, [](__m128 x, __m128 y) { return _mm_add_ps(x, y); });
}
inline float greatest(const Floats& a) {
  return fold(
      a, [](__m256 x, __m256 y) { return _mm256_max_ps(x, y); }, [](__m128 x, __m128 y) { return _mm_max_ps(x, y); });
}
#else
template <typename Fold4>
inline float fold(const Floats& a, Fold4 fold4) {
  const float32x4_t four = fold4(fold4(a.part[0], a.part[2]), fold4(a.part[1], a.part[3]));
  const float32x4_t two = fold4(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(fold4(two, vextq_f32(two, two, 1)), 0);
}
inline float sum(const Floats& a) { return fold(a, part::add); }
inline float greatest(const Floats& a) { return fold(a, part::maximum); }
#endif


// The sums of sixteen, lane i of `make(i)`, by the same tree: a level folds two vectors into one, half of each, so that
// sixteen sums take a fourth of the steps that one at a time would. `make` is called out of order: what a level folds
// together is chosen so that the sums come out in order.
#if defined(__AVX512F__)
inline FloatPart fold8(FloatPart x, FloatPart y) {  // [8 of x, 8 of y]
  return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xEE));
}
inline FloatPart fold4(FloatPart x, FloatPart y) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD));
}
inline FloatPart fold2(FloatPart x, FloatPart y) {
  return _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xEE));
}
inline FloatPart fold1(FloatPart x, FloatPart y) {
  return _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xDD));
}
template <typename Make>
inline Floats sums(Make make) {
  const auto four = [&](int i) INLINED {
    const FloatPart first = fold8(make(i).part[0], make(i + 4).part[0]);
    return fold4(first, fold8(make(i + 8).part[0], make(i + 12).part[0]));
  };
  const FloatPart low = fold2(four(0), four(1));
  return {{fold1(low, fold2(four(2), four(3)))}};
}
#elif defined(__AVX2__)
inline FloatPart fold4(FloatPart x, FloatPart y) {  // [4 of x, 4 of y]
  return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
}
inline FloatPart fold2(FloatPart x, FloatPart y) {
  return _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xEE));
}
inline FloatPart fold1(FloatPart x, FloatPart y) {
  return _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xDD));
}
template <typename Make>
inline Floats sums(Make make) {
  const auto eight = [&](int i) INLINED {
    const Floats x = make(i);
    return _mm256_add_ps(x.part[0], x.part[1]);
  };
  Floats result;
  for (int p = 0; p < kParts; ++p) {
    const auto two = [&](int i) INLINED { return fold4(eight(p * 8 + i), eight(p * 8 + i + 4)); };
    const FloatPart low = fold2(two(0), two(1));
    result.part[p] = fold1(low, fold2(two(2), two(3)));
  }
  return result;
}
#else
template <typename Make>
inline Floats sums(Make make) {
  const auto four = [&](int i) INLINED {
    const Floats x = make(i);
    return vaddq_f32(vaddq_f32(x.part[0], x.part[2]), vaddq_f32(x.part[1], x.part[3]));
  };
  const auto fold2 = [](float32x4_t x, float32x4_t y) {  // [2 of x, 2 of y]
    const float32x4_t low = vcombine_f32(vget_low_f32(x), vget_low_f32(y));
    return vaddq_f32(low, vcombine_f32(vget_high_f32(x), vget_high_f32(y)));
  };
  Floats result;
  for (int p = 0; p < kParts; ++p) {
    const float32x4_t low = fold2(four(p * 4), four(p * 4 + 1));
    result.part[p] = vpaddq_f32(low, fold2(four(p * 4 + 2), four(p * 4 + 3)));
  }
  return result;
}
#endif

}  // namespace peakplan
