// The instructions of AVX-VNNI and AVX-512 that the kernels use, by those of AVX2: for processors that lack them.
//
// Included before the sources (-include), which then find the names taken. Names begin as Intel's do.
#pragma once

#include <immintrin.h>

// Sums of four products, unsigned by signed bytes, exact: what vpdpbusd adds to each lane.
inline __m256i emulated_dpbusd(__m256i sum, __m256i bytes, __m256i signed_bytes) {
  const __m256i even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xFF)), odd = _mm256_srli_epi16(bytes, 8);
  const __m256i signed_even = _mm256_srai_epi16(_mm256_slli_epi16(signed_bytes, 8), 8);
  const __m256i signed_odd = _mm256_srai_epi16(signed_bytes, 8);
  const __m256i products = _mm256_add_epi32(_mm256_madd_epi16(even, signed_even), _mm256_madd_epi16(odd, signed_odd));
  return _mm256_add_epi32(sum, products);
}

#ifdef EMULATE_AVXVNNI
#define __AVXVNNI__ 1
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
#endif

#ifdef EMULATE_AVX512VNNI
#define __AVX512F__ 1
#define __AVX512VNNI__ 1

// The operators of two registers that stand for one: `low` has the first eight lanes.
struct Emulated512 {
  __m256 low, high;
};
struct Emulated512i {
  __m256i low, high;
};

#define EMULATE_1(name, operation) \
  inline Emulated512 emulated_##name(Emulated512 a) { return {operation(a.low), operation(a.high)}; }
#define EMULATE_2(name)                                                 \
  inline Emulated512 emulated_##name(Emulated512 a, Emulated512 b) {    \
    return {_mm256_##name##_ps(a.low, b.low), _mm256_##name##_ps(a.high, b.high)}; \
  }
#define EMULATE_3(name)                                                            \
  inline Emulated512 emulated_##name(Emulated512 a, Emulated512 b, Emulated512 c) { \
    return {_mm256_##name##_ps(a.low, b.low, c.low), _mm256_##name##_ps(a.high, b.high, c.high)}; \
  }
EMULATE_2(add)
EMULATE_2(sub)
EMULATE_2(mul)
EMULATE_2(div)
EMULATE_2(max)
EMULATE_2(min)
EMULATE_3(fmadd)
EMULATE_3(fnmadd)

inline __m256 emulated_half_absolute(__m256 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline __m256 emulated_half_rounded(__m256 a) { return _mm256_round_ps(a, 8); }
EMULATE_1(abs, emulated_half_absolute)
EMULATE_1(round, emulated_half_rounded)

inline __m256 emulated_half_scalef(__m256 a, __m256 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}
inline Emulated512 emulated_scalef(Emulated512 a, Emulated512 n) {
  return {emulated_half_scalef(a.low, n.low), emulated_half_scalef(a.high, n.high)};
}
inline Emulated512 emulated_masked(unsigned mask, Emulated512 a) {
  float lanes[16];
  _mm256_storeu_ps(lanes, a.low);
  _mm256_storeu_ps(lanes + 8, a.high);
  for (int lane = 0; lane < 16; ++lane)
    if (!(mask >> lane & 1)) lanes[lane] = 0.0f;
  return {_mm256_loadu_ps(lanes), _mm256_loadu_ps(lanes + 8)};
}
inline Emulated512 emulated_loadu(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
inline void emulated_storeu(float* at, Emulated512 a) {
  _mm256_storeu_ps(at, a.low);
  _mm256_storeu_ps(at + 8, a.high);
}
inline Emulated512 emulated_set1(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
inline Emulated512i emulated_set1_integer(int a) { return {_mm256_set1_epi32(a), _mm256_set1_epi32(a)}; }
inline Emulated512i emulated_load_integers(const void* at) {
  const __m256i* halves = static_cast<const __m256i*>(at);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
inline void emulated_store_integers(void* at, Emulated512i a) {
  __m256i* halves = static_cast<__m256i*>(at);
  _mm256_storeu_si256(halves, a.low);
  _mm256_storeu_si256(halves + 1, a.high);
}
inline Emulated512i emulated_widened(__m256i words) {
  return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(words)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(words, 1))};
}
inline Emulated512i emulated_shifted(Emulated512i a, int bits) {
  return {_mm256_slli_epi32(a.low, bits), _mm256_slli_epi32(a.high, bits)};
}
inline Emulated512 emulated_as_floats(Emulated512i a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
inline Emulated512 emulated_to_floats(Emulated512i a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
inline Emulated512i emulated_to_integers(Emulated512 a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }
inline Emulated512i emulated_dpbusd(Emulated512i sum, Emulated512i bytes, Emulated512i signed_bytes) {
  return {emulated_dpbusd(sum.low, bytes.low, signed_bytes.low), emulated_dpbusd(sum.high, bytes.high, signed_bytes.high)};
}

inline Emulated512i emulated_packs_integers(Emulated512i a, Emulated512i b) {
  return {_mm256_packs_epi32(a.low, b.low), _mm256_packs_epi32(a.high, b.high)};
}
inline Emulated512i emulated_packs_words(Emulated512i a, Emulated512i b) {
  return {_mm256_packs_epi16(a.low, b.low), _mm256_packs_epi16(a.high, b.high)};
}
template <typename... Integers>
inline Emulated512i emulated_setr_integers(Integers... lanes) {
  const int all[16] = {lanes...};
  return emulated_load_integers(all);
}
inline Emulated512i emulated_permuted(Emulated512i order, Emulated512i a) {
  int from[16], to[16], lanes[16];
  emulated_store_integers(from, a);
  emulated_store_integers(to, order);
  for (int lane = 0; lane < 16; ++lane) lanes[lane] = from[to[lane] & 15];
  return emulated_load_integers(lanes);
}
inline int emulated_sum_of_integers(Emulated512i a) {
  int lanes[16], sum = 0;
  emulated_store_integers(lanes, a);
  for (int lane : lanes) sum += lane;
  return sum;
}
// Two quarters of `a`, then two of `b`, which two bits each name.
inline Emulated512 emulated_quarters(Emulated512 a, Emulated512 b, int which) {
  float from[2][16], lanes[16];
  emulated_storeu(from[0], a);
  emulated_storeu(from[1], b);
  for (int lane = 0; lane < 16; ++lane) {
    const int quarter = lane / 4;
    lanes[lane] = from[quarter / 2][(which >> 2 * quarter & 3) * 4 + lane % 4];
  }
  return {_mm256_loadu_ps(lanes), _mm256_loadu_ps(lanes + 8)};
}

#define __m512 Emulated512
#define __m512i Emulated512i
#define __mmask16 unsigned short
#define _mm512_add_ps emulated_add
#define _mm512_sub_ps emulated_sub
#define _mm512_mul_ps emulated_mul
#define _mm512_div_ps emulated_div
#define _mm512_max_ps emulated_max
#define _mm512_min_ps emulated_min
#define _mm512_fmadd_ps emulated_fmadd
#define _mm512_fnmadd_ps emulated_fnmadd
#define _mm512_abs_ps emulated_abs
#define _mm512_roundscale_ps(a, how) emulated_round(a)
#define _mm512_scalef_ps emulated_scalef
#define _mm512_maskz_mov_ps emulated_masked
#define _mm512_loadu_ps emulated_loadu
#define _mm512_storeu_ps emulated_storeu
#define _mm512_set1_ps emulated_set1
#define _mm512_set1_epi32 emulated_set1_integer
#define _mm512_load_si512 emulated_load_integers
#define _mm512_storeu_si512 emulated_store_integers
#define _mm512_cvtepu16_epi32 emulated_widened
#define _mm512_slli_epi32 emulated_shifted
#define _mm512_castsi512_ps emulated_as_floats
#define _mm512_cvtepi32_ps emulated_to_floats
#define _mm512_cvtps_epi32 emulated_to_integers
#define _mm512_dpbusd_epi32 emulated_dpbusd
#define _mm512_packs_epi32 emulated_packs_integers
#define _mm512_packs_epi16 emulated_packs_words
#define _mm512_setr_epi32 emulated_setr_integers
#define _mm512_permutexvar_epi32 emulated_permuted
#define _mm512_reduce_add_epi32 emulated_sum_of_integers
#define _mm512_setzero_si512() emulated_set1_integer(0)
#define _mm512_set1_epi8(a) (Emulated512i{_mm256_set1_epi8(a), _mm256_set1_epi8(a)})
#define _mm512_shuffle_f32x4 emulated_quarters
#define _mm512_shuffle_ps(a, b, which) \
  (Emulated512{_mm256_shuffle_ps((a).low, (b).low, which), _mm256_shuffle_ps((a).high, (b).high, which)})
#define _mm512_castps_pd(a) (a)
#define _mm512_castps512_ps256(a) ((a).low)
#define _mm512_extractf64x4_pd(a, half) _mm256_castps_pd((half) ? (a).high : (a).low)
#endif
