// Sixteen float lanes: one register of 512 bits, two of 256 or four of 128, whichever the target has.
//
// Every operation here gives the same bits on every target. Elementwise ones are single IEEE 754 operations, rounded to
// the nearest even; where targets differ outside them (which operand a maximum with a NaN answers, integers out of
// range), x86's way is spelt out for the others. Sums over lanes have one order, see folds.h. The compiler may contract
// nothing (-ffp-contract=off).
#pragma once

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#else
#error "these kernels need AVX2 and FMA, AVX-512, or NEON"
#endif

#include <cstddef>
#include <cstdint>

// What must be part of its caller for registers to keep what it works on; compilers guess otherwise where it is long.
#define INLINED __attribute__((always_inline))

namespace peakplan {

constexpr int kLanes = 16;

#if defined(__AVX512F__)

using FloatPart = __m512;
using IntPart = __m512i;

namespace part {
inline FloatPart load(const float* at) { return _mm512_loadu_ps(at); }
inline void store(float* at, FloatPart a) { _mm512_storeu_ps(at, a); }
inline FloatPart set(float a) { return _mm512_set1_ps(a); }
inline FloatPart add(FloatPart a, FloatPart b) { return _mm512_add_ps(a, b); }
inline FloatPart subtract(FloatPart a, FloatPart b) { return _mm512_sub_ps(a, b); }
inline FloatPart multiply(FloatPart a, FloatPart b) { return _mm512_mul_ps(a, b); }
inline FloatPart divide(FloatPart a, FloatPart b) { return _mm512_div_ps(a, b); }
inline FloatPart multiply_add(FloatPart a, FloatPart b, FloatPart c) { return _mm512_fmadd_ps(a, b, c); }
inline FloatPart negative_multiply_add(FloatPart a, FloatPart b, FloatPart c) { return _mm512_fnmadd_ps(a, b, c); }
inline FloatPart maximum(FloatPart a, FloatPart b) { return _mm512_max_ps(a, b); }
inline FloatPart minimum(FloatPart a, FloatPart b) { return _mm512_min_ps(a, b); }
inline FloatPart absolute(FloatPart a) { return _mm512_abs_ps(a); }
inline FloatPart round(FloatPart a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline FloatPart times_power_of_two(FloatPart a, FloatPart n) { return _mm512_scalef_ps(a, n); }
inline FloatPart first(FloatPart a, int count) {
  return _mm512_maskz_mov_ps(static_cast<__mmask16>(count >= kLanes ? 0xFFFF : (1u << count) - 1), a);
}
inline FloatPart load_bfloat16(const uint16_t* at) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline IntPart set_integer(int32_t a) { return _mm512_set1_epi32(a); }
inline FloatPart to_float(IntPart a) { return _mm512_cvtepi32_ps(a); }
inline IntPart to_integer(FloatPart a) { return _mm512_cvtps_epi32(a); }
inline void store(int32_t* at, IntPart a) { _mm512_storeu_si512(at, a); }
}  // namespace part

#elif defined(__AVX2__)

using FloatPart = __m256;
using IntPart = __m256i;

namespace part {
inline FloatPart load(const float* at) { return _mm256_loadu_ps(at); }
inline void store(float* at, FloatPart a) { _mm256_storeu_ps(at, a); }
inline FloatPart set(float a) { return _mm256_set1_ps(a); }
inline FloatPart add(FloatPart a, FloatPart b) { return _mm256_add_ps(a, b); }
inline FloatPart subtract(FloatPart a, FloatPart b) { return _mm256_sub_ps(a, b); }
inline FloatPart multiply(FloatPart a, FloatPart b) { return _mm256_mul_ps(a, b); }
inline FloatPart divide(FloatPart a, FloatPart b) { return _mm256_div_ps(a, b); }
inline FloatPart multiply_add(FloatPart a, FloatPart b, FloatPart c) { return _mm256_fmadd_ps(a, b, c); }
inline FloatPart negative_multiply_add(FloatPart a, FloatPart b, FloatPart c) { return _mm256_fnmadd_ps(a, b, c); }
inline FloatPart maximum(FloatPart a, FloatPart b) { return _mm256_max_ps(a, b); }
inline FloatPart minimum(FloatPart a, FloatPart b) { return _mm256_min_ps(a, b); }
inline FloatPart absolute(FloatPart a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline FloatPart round(FloatPart a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline FloatPart times_power_of_two(FloatPart a, FloatPart n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}
inline FloatPart first(FloatPart a, int count) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), index)));
}
inline FloatPart load_bfloat16(const uint16_t* at) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline IntPart set_integer(int32_t a) { return _mm256_set1_epi32(a); }
inline FloatPart to_float(IntPart a) { return _mm256_cvtepi32_ps(a); }
inline IntPart to_integer(FloatPart a) { return _mm256_cvtps_epi32(a); }
inline void store(int32_t* at, IntPart a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), a); }
}  // namespace part

#else  // NEON

using FloatPart = float32x4_t;
using IntPart = int32x4_t;

namespace part {
inline FloatPart load(const float* at) { return vld1q_f32(at); }
inline void store(float* at, FloatPart a) { vst1q_f32(at, a); }
inline FloatPart set(float a) { return vdupq_n_f32(a); }
inline FloatPart add(FloatPart a, FloatPart b) { return vaddq_f32(a, b); }
inline FloatPart subtract(FloatPart a, FloatPart b) { return vsubq_f32(a, b); }
inline FloatPart multiply(FloatPart a, FloatPart b) { return vmulq_f32(a, b); }
inline FloatPart divide(FloatPart a, FloatPart b) { return vdivq_f32(a, b); }
inline FloatPart multiply_add(FloatPart a, FloatPart b, FloatPart c) { return vfmaq_f32(c, a, b); }
inline FloatPart negative_multiply_add(FloatPart a, FloatPart b, FloatPart c) { return vfmsq_f32(c, a, b); }
// As x86 has them: the second operand unless the first is greater (less), NaNs and zeros of either sign included.
inline FloatPart maximum(FloatPart a, FloatPart b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline FloatPart minimum(FloatPart a, FloatPart b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline FloatPart absolute(FloatPart a) { return vabsq_f32(a); }
inline FloatPart round(FloatPart a) { return vrndnq_f32(a); }
inline FloatPart times_power_of_two(FloatPart a, FloatPart n) {
  const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
  return vmulq_f32(a, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
}
inline FloatPart first(FloatPart a, int count) {
  const int32x4_t index = {0, 1, 2, 3};
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), vcgtq_s32(vdupq_n_s32(count), index)));
}
inline FloatPart load_bfloat16(const uint16_t* at) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(at), 16)); }
inline IntPart set_integer(int32_t a) { return vdupq_n_s32(a); }
inline FloatPart to_float(IntPart a) { return vcvtq_f32_s32(a); }
// What does not fit, NaNs included, becomes the least integer, as on x86.
inline IntPart to_integer(FloatPart a) {
  const uint32x4_t fits = vcltq_f32(vabsq_f32(a), vdupq_n_f32(2147483648.0f));
  return vbslq_s32(fits, vcvtnq_s32_f32(a), vdupq_n_s32(INT32_MIN));
}
inline void store(int32_t* at, IntPart a) { vst1q_s32(at, a); }
}  // namespace part

#endif

constexpr int kPartLanes = sizeof(FloatPart) / sizeof(float);
constexpr int kParts = kLanes / kPartLanes;

struct Floats {
  FloatPart part[kParts];
};

struct Ints {
  IntPart part[kParts];
};

// One operation on every part, of one, two or three operands.
template <typename Operation>
inline Floats each_part(Operation operation) {
  Floats result;
  for (int p = 0; p < kParts; ++p) result.part[p] = operation(p);
  return result;
}

inline Floats load(const float* at) {
  return each_part([=](int p) { return part::load(at + p * kPartLanes); });
}
inline void store(float* at, const Floats& a) {
  for (int p = 0; p < kParts; ++p) part::store(at + p * kPartLanes, a.part[p]);
}
inline Floats set(float a) {
  return each_part([=](int) { return part::set(a); });
}
inline Floats operator+(const Floats& a, const Floats& b) {
  return each_part([&](int p) { return part::add(a.part[p], b.part[p]); });
}
inline Floats operator-(const Floats& a, const Floats& b) {
  return each_part([&](int p) { return part::subtract(a.part[p], b.part[p]); });
}
inline Floats operator*(const Floats& a, const Floats& b) {
  return each_part([&](int p) { return part::multiply(a.part[p], b.part[p]); });
}
inline Floats operator/(const Floats& a, const Floats& b) {
  return each_part([&](int p) { return part::divide(a.part[p], b.part[p]); });
}
// a * b + c, and c - a * b, rounded once.
inline Floats multiply_add(const Floats& a, const Floats& b, const Floats& c) {
  return each_part([&](int p) { return part::multiply_add(a.part[p], b.part[p], c.part[p]); });
}
inline Floats negative_multiply_add(const Floats& a, const Floats& b, const Floats& c) {
  return each_part([&](int p) { return part::negative_multiply_add(a.part[p], b.part[p], c.part[p]); });
}
inline Floats maximum(const Floats& a, const Floats& b) {
  return each_part([&](int p) { return part::maximum(a.part[p], b.part[p]); });
}
inline Floats minimum(const Floats& a, const Floats& b) {
  return each_part([&](int p) { return part::minimum(a.part[p], b.part[p]); });
}
inline Floats absolute(const Floats& a) {
  return each_part([&](int p) { return part::absolute(a.part[p]); });
}
// To the nearest integer, halves to the even one.
inline Floats round(const Floats& a) {
  return each_part([&](int p) { return part::round(a.part[p]); });
}
// a * 2^n for whole n from -126 to 127, rounded once.
inline Floats times_power_of_two(const Floats& a, const Floats& n) {
  return each_part([&](int p) { return part::times_power_of_two(a.part[p], n.part[p]); });
}
// The first `count` lanes, zeros after them.
inline Floats first(const Floats& a, size_t count) {
  const int lanes = count < kLanes ? static_cast<int>(count) : kLanes;
  return each_part([&](int p) { return part::first(a.part[p], lanes - p * kPartLanes); });
}
inline Floats load_bfloat16(const uint16_t* at) {
  return each_part([=](int p) { return part::load_bfloat16(at + p * kPartLanes); });
}
inline Floats to_float(const Ints& a) {
  return each_part([&](int p) { return part::to_float(a.part[p]); });
}
// Rounded as `round` does.
inline Ints to_integer(const Floats& a) {
  Ints result;
  for (int p = 0; p < kParts; ++p) result.part[p] = part::to_integer(a.part[p]);
  return result;
}
inline void store(int32_t* at, const Ints& a) {
  for (int p = 0; p < kParts; ++p) part::store(at + p * kPartLanes, a.part[p]);
}
inline Ints set_integer(int32_t a) {
  Ints result;
  for (IntPart& each : result.part) each = part::set_integer(a);
  return result;
}

}  // namespace peakplan
