/* Matrix products, a [M, K] times b [K, N], with sums in float32.
 *
 * PANEL columns of b lie together, row after row (in bfloat16 pairs of rows), padded with zeros. A block of ROWS rows of
 * a keeps its 2 * ROWS vectors of sums in registers while it goes down a panel, which stays in the caches. */

/* Rows 0 to K of `matrix`, `stride` apart, N columns -> panels. */
static void NAME(pack)(const ELEMENT *matrix, int64_t stride, int64_t K, int64_t N, ELEMENT *panels) {
  int64_t depth = round_up(K, PER_LANE);
  for (int64_t start = 0; start < depth; start += 8) /* 8 rows at a time: reads and writes go on where they were */
    for (int64_t first = 0; first < N; first += PANEL) {
      __mmask16 left = lanes_of(N - first), right = lanes_of(N - first - LANES);
      for (int64_t k = start; k < depth && k < start + 8; k += PER_LANE) {
        const ELEMENT *from = matrix + k * stride + first;
        ELEMENT *to = panels + first * depth + k * PANEL;
#ifdef FLOAT32
        _mm512_store_ps(to, load_f32(from, left));
        _mm512_store_ps(to + LANES, load_f32(from + LANES, right));
#else
        int is_pair = k + 1 < K;
        store_pairs(to, from, from + stride, left, is_pair ? left : 0);
        store_pairs(to + 2 * LANES, from + LANES, from + stride + LANES, right, is_pair ? right : 0);
#endif
      }
    }
}

/* The same of a transposed matrix: columns 0 to K of N rows. */
static void NAME(pack_transposed)(const ELEMENT *matrix, int64_t stride, int64_t K, int64_t N, ELEMENT *panels) {
  int64_t depth = round_up(K, PER_LANE);
  for (int64_t first = 0; first < N; first += PANEL, panels += depth * PANEL)
    for (int64_t start = 0; start < depth; start += LANES) /* a tile that stays in the first cache */
      for (int64_t j = 0; j < PANEL; j++)
        for (int64_t k = start; k < depth && k < start + LANES; k++)
          panels[(k / PER_LANE * PANEL + j) * PER_LANE + k % PER_LANE] =
              first + j < N && k < K ? matrix[(first + j) * stride + k] : 0;
}

/* `rows` rows of a product with one panel; `rows` is a constant wherever this is called. */
INLINE void NAME(block)(int rows, const ELEMENT *a, int64_t stride, const ELEMENT *panel, int64_t depth, float *to,
                        int64_t to_stride, int64_t width, int adds) {
  __m512 sums[ROWS][2];
  __mmask16 left = lanes_of(width), right = lanes_of(width - LANES);
#pragma GCC unroll 8
  for (int m = 0; m < rows; m++) {
    sums[m][0] = load_f32(to + m * to_stride, adds ? left : 0);
    sums[m][1] = load_f32(to + m * to_stride + LANES, adds ? right : 0);
  }
  for (int64_t k = 0; k < depth; k += PER_LANE, panel += PANEL * PER_LANE) {
#ifdef FLOAT32
    __m512 b0 = _mm512_load_ps(panel), b1 = _mm512_load_ps(panel + LANES);
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
      __m512 x = _mm512_set1_ps(a[m * stride + k]);
      sums[m][0] = _mm512_fmadd_ps(x, b0, sums[m][0]);
      sums[m][1] = _mm512_fmadd_ps(x, b1, sums[m][1]);
    }
#else
    __m512bh b0 = (__m512bh)_mm512_load_si512(panel), b1 = (__m512bh)_mm512_load_si512(panel + 2 * LANES);
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
      int32_t pair;
      memcpy(&pair, &a[m * stride + k], sizeof pair);
      __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
      sums[m][0] = _mm512_dpbf16_ps(sums[m][0], x, b0);
      sums[m][1] = _mm512_dpbf16_ps(sums[m][1], x, b1);
    }
#endif
  }
#pragma GCC unroll 8
  for (int m = 0; m < rows; m++) {
    store_f32(to + m * to_stride, sums[m][0], left);
    store_f32(to + m * to_stride + LANES, sums[m][1], right);
  }
}

/* a [M, depth], rows `stride` apart and zero (or absent, where depth is even) past K, times packed panels of N columns
 * -> to [M, N], rows `to_stride` apart; `adds` to what is there. */
static void NAME(product)(const ELEMENT *a, int64_t stride, int64_t M, const ELEMENT *panels, int64_t depth, int64_t N,
                          float *to, int64_t to_stride, int adds) {
  for (int64_t first = 0; first < N; first += PANEL, panels += depth * PANEL) {
    int64_t m = 0, width = N - first;
    for (; m + ROWS <= M; m += ROWS)
      NAME(block)(ROWS, a + m * stride, stride, panels, depth, to + m * to_stride + first, to_stride, width, adds);
    for (; m + 4 <= M; m += 4)
      NAME(block)(4, a + m * stride, stride, panels, depth, to + m * to_stride + first, to_stride, width, adds);
    for (; m < M; m++)
      NAME(block)(1, a + m * stride, stride, panels, depth, to + m * to_stride + first, to_stride, width, adds);
  }
}

/* As `product`, of a b [K, N] that is not packed: DEPTH rows and WIDTH columns of it are packed at a time into `panels`
 * (DEPTH * WIDTH elements), so that they stay in the second cache. */
static void NAME(large_product)(const ELEMENT *a, int64_t stride, int64_t M, int64_t K, const ELEMENT *b, int64_t N,
                                ELEMENT *panels, float *to) {
  for (int64_t k = 0; k < K; k += DEPTH)
    for (int64_t n = 0; n < N; n += WIDTH) {
      int64_t depth = K - k < DEPTH ? K - k : DEPTH, width = N - n < WIDTH ? N - n : WIDTH;
      NAME(pack)(b + k * N + n, N, depth, width, panels);
      NAME(product)(a + k, stride, M, panels, round_up(depth, PER_LANE), width, to + n, N, k > 0);
    }
}

/* from [N, D] -> to [D, N], rows `stride` apart. */
static void NAME(transpose)(const ELEMENT *from, int64_t N, int64_t D, ELEMENT *to, int64_t stride) {
  for (int64_t start = 0; start < N; start += LANES)
    for (int64_t d = 0; d < D; d++)
      for (int64_t n = start; n < N && n < start + LANES; n++) to[d * stride + n] = from[n * D + d];
}
