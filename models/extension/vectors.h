/* Vectors of 16 float32 (AVX-512) and the functions of gates and softmax on them. */
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16 };
typedef uint16_t bfloat16;

INLINE __mmask16 lanes_of(int64_t count) {
  return count >= LANES ? 0xFFFF : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

INLINE __m512 load_f32(const float *from, __mmask16 lanes) { return _mm512_maskz_loadu_ps(lanes, from); }
INLINE void store_f32(float *to, __m512 x, __mmask16 lanes) { _mm512_mask_storeu_ps(to, lanes, x); }

INLINE __m512 load_bf16(const bfloat16 *from, __mmask16 lanes) {
  __m256i half = _mm256_maskz_loadu_epi16(lanes, from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
INLINE void store_bf16(bfloat16 *to, __m512 x, __mmask16 lanes) {
  _mm256_mask_storeu_epi16(to, lanes, (__m256i)_mm512_cvtneps_pbh(x));
}

/* Pairs of the upper and the lower row, lane by lane; a row whose mask is 0 counts as zeros. */
INLINE void store_pairs(bfloat16 *to, const bfloat16 *upper, const bfloat16 *lower, __mmask16 of_upper, __mmask16 of_lower) {
  __m512i first = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(of_upper, upper));
  __m512i second = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(of_lower, lower));
  _mm512_store_si512(to, _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
}

/* 1 / x for 2^-126 <= x < 2^126, to about one unit of the last place: an estimate and one step of Newton's. */
INLINE __m512 reciprocal(__m512 x) {
  __m512 y = _mm512_rcp14_ps(x);
  return _mm512_mul_ps(y, _mm512_fnmadd_ps(x, y, _mm512_set1_ps(2.0f)));
}

/* e^x to about two units of the last place; 0 below float32's range, NaN of NaN.
 * x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts, so that r is exact; e^r by its Taylor polynomial. */
INLINE __m512 exponential(__m512 x) {
  /* min and max return their second operand where one is NaN. */
  x = _mm512_max_ps(_mm512_set1_ps(-104.0f), _mm512_min_ps(_mm512_set1_ps(88.5f), x));
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.0f / 720);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

INLINE __m512 sigmoid(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-80.0f), _mm512_min_ps(_mm512_set1_ps(80.0f), x));
  __m512 one = _mm512_set1_ps(1.0f);
  return reciprocal(_mm512_add_ps(one, exponential(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

/* A quotient of polynomials, which near 0 keeps the relative error at some units of the last place.
 * Source of the coefficients: Eigen, unsupported and Core/MathFunctionsImpl.h, ptanh_float. */
INLINE __m512 tangent(__m512 x) {
  const float limit = 7.90531110763549805f;
  x = _mm512_max_ps(_mm512_set1_ps(-limit), _mm512_min_ps(_mm512_set1_ps(limit), x));
  __m512 x2 = _mm512_mul_ps(x, x);
  __m512 p = _mm512_set1_ps(-2.76076847742355e-16f);
  p = _mm512_fmadd_ps(p, x2, _mm512_set1_ps(2.00018790482477e-13f));
  p = _mm512_fmadd_ps(p, x2, _mm512_set1_ps(-8.60467152213735e-11f));
  p = _mm512_fmadd_ps(p, x2, _mm512_set1_ps(5.12229709037114e-08f));
  p = _mm512_fmadd_ps(p, x2, _mm512_set1_ps(1.48572235717979e-05f));
  p = _mm512_fmadd_ps(p, x2, _mm512_set1_ps(6.37261928875436e-04f));
  p = _mm512_fmadd_ps(p, x2, _mm512_set1_ps(4.89352455891786e-03f));
  __m512 q = _mm512_set1_ps(1.19825839466702e-06f);
  q = _mm512_fmadd_ps(q, x2, _mm512_set1_ps(1.18534705686654e-04f));
  q = _mm512_fmadd_ps(q, x2, _mm512_set1_ps(2.26843463243900e-03f));
  q = _mm512_fmadd_ps(q, x2, _mm512_set1_ps(4.89352518554385e-03f));
  return _mm512_mul_ps(_mm512_mul_ps(x, p), reciprocal(q));
}
