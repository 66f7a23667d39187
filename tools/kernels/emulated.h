/* Tests the loops of variant.c for AVX-512 and AVX512_BF16 on every processor with AVX2. Included before variant.c
 * (-include) with EMULATED_AVX512, so that the compiler splits vectors of 64 bytes, and with EMULATED_BF16. Each
 * instruction that the sources name is a function with the same results (VRCP14PS: a more exact one).
 * Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: VSCALEFPS, VDPBF16PS, VCVTNEPS2BF16. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define EACH_LANE(x, value)                      \
  for (int n = 0; n < 16; n++) x[n] = (value);   \
  return x

#ifdef EMULATED_AVX512
static inline __m512 emulated_set1(float x) { return (__m512){} + x; }
static inline __m512 emulated_max(__m512 x, __m512 y) { EACH_LANE(y, x[n] > y[n] ? x[n] : y[n]); }
static inline __m512 emulated_min(__m512 x, __m512 y) { EACH_LANE(y, x[n] < y[n] ? x[n] : y[n]); }
static inline __m512 emulated_rcp14(__m512 x) { return 1.0f / x; }
static inline __m512 emulated_scalef(__m512 x, __m512 y) { EACH_LANE(x, isnan(y[n]) ? y[n] : ldexpf(x[n], (int)floorf(y[n]))); }
static inline __m512 emulated_roundscale(__m512 x, int to_nearest) { EACH_LANE(x, rintf(x[n]) + to_nearest); }
static inline __m512i emulated_set1_epi32(int32_t x) {
  int32_t __attribute__((vector_size(64))) made = {};
  return (__m512i)(made + x);
}
/* The manual leaves the upper lanes undefined. Here they are NaN, so that a test sees a use of them. */
static inline __m512 emulated_cast(__m128 x) {
  __m512 widened = emulated_set1(NAN);
  memcpy(&widened, &x, sizeof x);
  return widened;
}
static inline __m512 emulated_insert(__m512 x, __m128 part, int quarter) {
  memcpy((char *)&x + quarter * sizeof part, &part, sizeof part);
  return x;
}
/* Each quarter of the result alternates numbers of x and y, from the lower (`upper` 0) or the upper half of theirs. */
static inline __m512 emulated_unpack(__m512 x, __m512 y, int upper) {
  __m512 mixed = x;
  for (int n = 0; n < 16; n++) {
    int from = n / 4 * 4 + 2 * upper + n % 4 / 2;
    mixed[n] = n % 2 ? y[from] : x[from];
  }
  return mixed;
}
static inline __m512d emulated_unpack_pairs(__m512d x, __m512d y, int upper) {
  __m512d mixed = x;
  for (int n = 0; n < 8; n++) mixed[n] = n % 2 ? y[n - 1 + upper] : x[n + upper];
  return mixed;
}
#define __AVX512F__ 1
#define _mm512_set1_ps emulated_set1
#define _mm512_max_ps emulated_max
#define _mm512_min_ps emulated_min
#define _mm512_rcp14_ps emulated_rcp14
#define _mm512_scalef_ps emulated_scalef
#define _mm512_set1_epi32 emulated_set1_epi32
#undef _mm512_roundscale_ps /* a macro where nothing is optimized */
#define _mm512_roundscale_ps emulated_roundscale
#define _mm512_castps128_ps512 emulated_cast
#undef _mm512_insertf32x4 /* a macro, too */
#define _mm512_insertf32x4 emulated_insert
#define _mm512_unpacklo_ps(x, y) emulated_unpack(x, y, 0)
#define _mm512_unpackhi_ps(x, y) emulated_unpack(x, y, 1)
#define _mm512_unpacklo_pd(x, y) emulated_unpack_pairs(x, y, 0)
#define _mm512_unpackhi_pd(x, y) emulated_unpack_pairs(x, y, 1)
#endif

#ifdef EMULATED_BF16
/* Denormal numbers count as zeros, and results that are denormal become zeros. */
static inline float emulated_flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

static inline float emulated_widened(short half) {
  uint32_t bits = (uint32_t)(uint16_t)half << 16;
  float x;
  memcpy(&x, &bits, 4);
  return emulated_flushed(x);
}

static inline short emulated_narrowed(float x) {
  uint32_t bits;
  x = emulated_flushed(x);
  memcpy(&bits, &x, 4);
  return (short)(isnan(x) ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static inline __m256bh emulated_narrow(__m512 x) {
  short halves[16];
  for (int n = 0; n < 16; n++) halves[n] = emulated_narrowed(x[n]);
  __m256bh made;
  memcpy(&made, halves, sizeof made);
  return made;
}

static inline __m512 emulated_dot(__m512 sums, __m512bh x, __m512bh y) {
  short of_x[32], of_y[32];
  memcpy(of_x, &x, sizeof x), memcpy(of_y, &y, sizeof y);
  for (int n = 0; n < 16; n++)
    for (int half = 1; half >= 0; half--) {
      float product_x = emulated_widened(of_x[2 * n + half]), product_y = emulated_widened(of_y[2 * n + half]);
      sums[n] = emulated_flushed(fmaf(product_x, product_y, emulated_flushed(sums[n])));
    }
  return sums;
}

#define __AVX512BF16__ 1
#define _mm512_cvtneps_pbh emulated_narrow
#define _mm512_dpbf16_ps emulated_dot
#endif
