/* Vectors of float32 of the instruction set that this file is compiled for, and the functions of gates and softmax.
 * Arithmetic uses operators, which GCC and clang have for vectors; they fuse x * y + z. */
#define INLINE static inline __attribute__((always_inline))

#ifdef __AVX512F__
enum { LANES = 16, VECTORS = 2, ROWS = 8 }; /* the sums of ROWS rows and VECTORS * LANES columns stay in registers */
#define OF_SET(name) _mm512_##name
typedef __m512 Single;
typedef __m512d Double;
#else
enum { LANES = 8, VECTORS = 3, ROWS = 4 };
#define OF_SET(name) _mm256_##name
typedef __m256 Single;
typedef __m256d Double;
#endif
enum { PANEL = VECTORS * LANES };

typedef uint16_t bfloat16;
typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef bfloat16 Halves __attribute__((vector_size(2 * LANES)));
typedef float Quarter __attribute__((vector_size(16))); /* 4 lanes, a quarter of those of AVX-512 */

INLINE Vector joined(const Quarter *parts) {
#ifdef __AVX512F__
  __m512 x = _mm512_castps128_ps512((__m128)parts[0]);
  x = _mm512_insertf32x4(_mm512_insertf32x4(x, (__m128)parts[1], 1), (__m128)parts[2], 2);
  return (Vector)_mm512_insertf32x4(x, (__m128)parts[3], 3);
#else
  return (Vector)_mm256_insertf128_ps(_mm256_castps128_ps256((__m128)parts[0]), (__m128)parts[1], 1);
#endif
}

/* Transposes each 4 x 4 block of four vectors. */
INLINE void transpose(Vector *x) {
#define UNPACKED(name, type, x, y) (Vector)OF_SET(unpack##name)((type)(x), (type)(y))
  Vector low = UNPACKED(lo_ps, Single, x[0], x[1]), high = UNPACKED(hi_ps, Single, x[0], x[1]);
  Vector low_2 = UNPACKED(lo_ps, Single, x[2], x[3]), high_2 = UNPACKED(hi_ps, Single, x[2], x[3]);
  x[0] = UNPACKED(lo_pd, Double, low, low_2), x[1] = UNPACKED(hi_pd, Double, low, low_2);
  x[2] = UNPACKED(lo_pd, Double, high, high_2), x[3] = UNPACKED(hi_pd, Double, high, high_2);
#undef UNPACKED
}

/* How many lanes of a vector `count` numbers fill. */
INLINE int lanes_of(int64_t count) { return count >= LANES ? LANES : count <= 0 ? 0 : (int)count; }
INLINE Vector all(float x) { return (Vector)OF_SET(set1_ps)(x); }
INLINE Vector larger(Vector x, Vector y) { return (Vector)OF_SET(max_ps)(x, y); } /* y where one is NaN */
INLINE Vector smaller(Vector x, Vector y) { return (Vector)OF_SET(min_ps)(x, y); }

/* Numbers of which `lanes` are there, and nothing past them is read or written; other lanes of a loaded vector are 0.
 * Fewer than LANES are rare: calls keep the loops around them small. */
#define PARTS(dtype, Number, Numbers)                                                        \
  static __attribute__((noinline)) Numbers load_part_##dtype(const Number *from, int lanes) { \
    Numbers x = {0};                                                                          \
    for (int n = 0; n < lanes; n++) x[n] = from[n];                                           \
    return x;                                                                                 \
  }                                                                                           \
  static __attribute__((noinline)) void store_part_##dtype(Number *to, Numbers x, int lanes) { \
    for (int n = 0; n < lanes; n++) to[n] = x[n];                                             \
  }                                                                                           \
  INLINE Numbers load_##dtype(const Number *from, int lanes) {                                \
    if (lanes < LANES) return load_part_##dtype(from, lanes);                                 \
    Numbers x;                                                                                \
    memcpy(&x, from, sizeof x);                                                               \
    return x;                                                                                 \
  }                                                                                           \
  INLINE void store_##dtype(Number *to, Numbers x, int lanes) {                               \
    if (lanes < LANES)                                                                        \
      store_part_##dtype(to, x, lanes);                                                       \
    else                                                                                      \
      memcpy(to, &x, sizeof x);                                                               \
  }
PARTS(f32, float, Vector)
PARTS(halves, bfloat16, Halves)

INLINE Vector load_bf16(const bfloat16 *from, int lanes) {
  return (Vector)(__builtin_convertvector(load_halves(from, lanes), Bits) << 16);
}

/* Rounded to the nearest, of two to the even one; NaN stays NaN. */
INLINE Halves halves_of(Vector x) {
#ifdef __AVX512BF16__
  return (Halves)_mm512_cvtneps_pbh((__m512)x);
#else
  Bits bits = (Bits)x, is_nan = (Bits)(x != x);
  bits += ((bits >> 16) & 1) + 0x7FFF;
  return __builtin_convertvector(((bits & ~is_nan) | (is_nan & 0x7FC00000)) >> 16, Halves);
#endif
}

INLINE Vector rounded_to_bf16(Vector x) { return (Vector)(__builtin_convertvector(halves_of(x), Bits) << 16); }

INLINE void store_bf16(bfloat16 *to, Vector x, int lanes) { store_halves(to, halves_of(x), lanes); }

/* x with `other` past its first `lanes` lanes. */
static Vector filled(Vector x, int lanes, float other) {
  for (int n = lanes; n < LANES; n++) x[n] = other;
  return x;
}

INLINE float sum_of_lanes(Vector x) {
  float sum = 0;
  for (int n = 0; n < LANES; n++) sum += x[n];
  return sum;
}

/* 1 / x for 2^-126 <= x < 2^126, to about one unit of the last place: an estimate and one step of Newton's method. */
INLINE Vector reciprocal(Vector x) {
#ifdef __AVX512F__
  Vector y = (Vector)_mm512_rcp14_ps((__m512)x);
#else
  Vector y = (Vector)_mm256_rcp_ps((__m256)x);
#endif
  return y * (2.0f - x * y);
}

/* x 2^n of whole numbers n, -150 <= n <= 128. */
INLINE Vector scaled(Vector x, Vector n) {
#ifdef __AVX512F__
  return (Vector)_mm512_scalef_ps((__m512)x, (__m512)n);
#else
  __m256i whole = _mm256_cvtps_epi32((__m256)n), half = _mm256_srai_epi32(whole, 1);
  Bits first = (Bits)half + 127, second = (Bits)_mm256_sub_epi32(whole, half) + 127; /* 2^n can be too small for one */
  return x * (Vector)(first << 23) * (Vector)(second << 23);
#endif
}

/* e^x to about two units of the last place; 0 below float32's range, NaN of NaN.
 * x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts, so that r is exact; e^r by its Taylor polynomial. */
INLINE Vector exponential(Vector x) {
  x = larger(all(-104.0f), smaller(all(88.5f), x));
#ifdef __AVX512F__
  Vector n = (Vector)_mm512_roundscale_ps((__m512)(x * 1.44269504f), 0);
#else
  Vector n = (Vector)_mm256_round_ps((__m256)(x * 1.44269504f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#endif
  Vector r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vector p = r * (1.0f / 720) + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return scaled(p, n);
}

INLINE Vector sigmoid(Vector x) {
  x = larger(all(-80.0f), smaller(all(80.0f), x));
  return reciprocal(1.0f + exponential(-x));
}

/* A quotient of polynomials, which near 0 keeps the relative error at some units of the last place.
 * Source of the coefficients: Eigen, unsupported and Core/MathFunctionsImpl.h, ptanh_float. */
INLINE Vector tangent(Vector x) {
  const float limit = 7.90531110763549805f;
  x = larger(all(-limit), smaller(all(limit), x));
  Vector x2 = x * x;
  Vector p = x2 * -2.76076847742355e-16f + 2.00018790482477e-13f;
  p = p * x2 + -8.60467152213735e-11f;
  p = p * x2 + 5.12229709037114e-08f;
  p = p * x2 + 1.48572235717979e-05f;
  p = p * x2 + 6.37261928875436e-04f;
  p = p * x2 + 4.89352455891786e-03f;
  Vector q = x2 * 1.19825839466702e-06f + 1.18534705686654e-04f;
  q = q * x2 + 2.26843463243900e-03f;
  q = q * x2 + 4.89352518554385e-03f;
  return x * p * reciprocal(q);
}
