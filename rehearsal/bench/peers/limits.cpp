// What one thread of this processor can do at best: bytes read a second, and multiplies of 8-bit integers a second.
// Compiled and called by limits.py. Multiplies run from registers alone, in twelve independent sums, so that neither
// memory nor the latency of an instruction is measured; the instructions are those that the kernels are made of.

#include <chrono>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr int kSums = 12;  // registers 0 to 11, named, for a compiler may keep an array in memory
#define FOR_EACH_SUM(f) f("0") f("1") f("2") f("3") f("4") f("5") f("6") f("7") f("8") f("9") f("10") f("11")

#if defined(__x86_64__)

#define SUMS_AND_FACTORS                                                                                       \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
      "xmm13", "xmm14"

#define AVX512_VNNI(sum) "vpdpbusd %%zmm12, %%zmm13, %%zmm" sum "\n\t"
void multiply_avx512_vnni(long times) {
  for (long i = 0; i < times; ++i) asm volatile(FOR_EACH_SUM(AVX512_VNNI)::: SUMS_AND_FACTORS);
  asm volatile("vzeroupper" ::: SUMS_AND_FACTORS);
}

#define AVX_VNNI(sum) "%{vex%} vpdpbusd %%ymm12, %%ymm13, %%ymm" sum "\n\t"
void multiply_avx_vnni(long times) {
  for (long i = 0; i < times; ++i) asm volatile(FOR_EACH_SUM(AVX_VNNI)::: SUMS_AND_FACTORS);
  asm volatile("vzeroupper" ::: SUMS_AND_FACTORS);
}

// Exact on AVX2: integers of 8 bits widened to 16, products summed in pairs of 32 bits, and these added.
#define AVX2(sum) "vpmaddwd %%ymm12, %%ymm13, %%ymm14\n\tvpaddd %%ymm14, %%ymm" sum ", %%ymm" sum "\n\t"
void multiply_avx2(long times) {
  for (long i = 0; i < times; ++i) asm volatile(FOR_EACH_SUM(AVX2)::: SUMS_AND_FACTORS);
  asm volatile("vzeroupper" ::: SUMS_AND_FACTORS);
}

__attribute__((target("avx512f"))) void read_512(const char* data, size_t bytes) {
  __m512i sums[4] = {};
  for (size_t i = 0; i < bytes; i += 256)
    for (int s = 0; s < 4; ++s) {
      _mm_prefetch(data + i + s * 64 + 4096, _MM_HINT_T0);
      sums[s] = _mm512_xor_si512(sums[s], _mm512_load_si512(data + i + s * 64));
    }
  asm volatile("" ::"v"(sums[0]), "v"(sums[1]), "v"(sums[2]), "v"(sums[3]));
}

__attribute__((target("avx2"))) void read_256(const char* data, size_t bytes) {
  __m256i sums[4] = {};
  for (size_t i = 0; i < bytes; i += 128) {
    _mm_prefetch(data + i + 4096, _MM_HINT_T0);
    _mm_prefetch(data + i + 64 + 4096, _MM_HINT_T0);
    for (int s = 0; s < 4; ++s)
      sums[s] = _mm256_xor_si256(sums[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + s * 32)));
  }
  asm volatile("" ::"x"(sums[0]), "x"(sums[1]), "x"(sums[2]), "x"(sums[3]));
}

#elif defined(__aarch64__)

#define SDOT(sum) ".arch_extension dotprod\n\tsdot v" sum ".4s, v12.16b, v13.16b\n\t"
void multiply_neon_dotprod(long times) {
  for (long i = 0; i < times; ++i)
    asm volatile(FOR_EACH_SUM(SDOT)::: "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11");
}

void read_128(const char* data, size_t bytes) {
  uint8x16_t sums[4] = {};
  for (size_t i = 0; i < bytes; i += 64)
    for (int s = 0; s < 4; ++s) sums[s] = veorq_u8(sums[s], vld1q_u8(reinterpret_cast<const uint8_t*>(data + i + s * 16)));
  asm volatile("" ::"w"(sums[0]), "w"(sums[1]), "w"(sums[2]), "w"(sums[3]));
}

#endif

}  // namespace

// Seconds to read `bytes` (a multiple of 256, at a multiple of 64) once; `wide`: by AVX-512.
extern "C" double limits_read(const char* data, size_t bytes, int wide) {
  const auto start = std::chrono::steady_clock::now();
#if defined(__x86_64__)
  wide ? read_512(data, bytes) : read_256(data, bytes);
#elif defined(__aarch64__)
  (void)wide, read_128(data, bytes);
#endif
  return seconds_since(start);
}

// Multiplies a second by an instruction set, in 1e9; 0 for one that this file does not have.
extern "C" double limits_multiply(int set, long times) {
  const auto start = std::chrono::steady_clock::now();
  double each = 0;  // multiplies an instruction
#if defined(__x86_64__)
  if (set == 0) each = 64, multiply_avx512_vnni(times);
  if (set == 1) each = 32, multiply_avx_vnni(times);
  if (set == 2) each = 16, multiply_avx2(times);
#elif defined(__aarch64__)
  if (set == 3) each = 16, multiply_neon_dotprod(times);
#endif
  return each == 0 ? 0 : each * kSums * static_cast<double>(times) / seconds_since(start) * 1e-9;
}
