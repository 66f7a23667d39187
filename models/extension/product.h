/* Matrix products, a [M, K] times b [K, N], with sums in float32.
 *
 * PANEL columns of b lie together, row after row (with PAIRS pairs of rows), padded with zeros. A block of ROWS rows of
 * a keeps its ROWS * VECTORS vectors of sums in registers while it goes down a panel, which stays in the caches. */

/* `count` numbers of a tensor or of float32 -> operands of a product. */
INLINE void NAME(pack_row)(PACKED *to, const ELEMENT *from, int64_t count) {
  for (int64_t n = 0; n < count; n += LANES) STORE_PACKED(to + n, LOAD(from + n, lanes_of(count - n)), lanes_of(count - n));
}
INLINE void NAME(pack_floats)(PACKED *to, const float *from, int64_t count) {
  for (int64_t n = 0; n < count; n += LANES)
    STORE_PACKED(to + n, load_f32(from + n, lanes_of(count - n)), lanes_of(count - n));
}
/* And float32 -> numbers of a tensor. */
INLINE void NAME(store_row)(ELEMENT *to, const float *from, int64_t count) {
  for (int64_t n = 0; n < count; n += LANES) STORE(to + n, load_f32(from + n, lanes_of(count - n)), lanes_of(count - n));
}
INLINE PACKED NAME(packed)(ELEMENT x) {
#if defined(FLOAT32) || defined(PAIRS)
  return x;
#else
  uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

/* Rows 0 to K of `matrix`, `stride` apart, N columns -> panels. */
static void NAME(pack)(const ELEMENT *matrix, int64_t stride, int64_t K, int64_t N, PACKED *panels) {
  int64_t depth = round_up(K, PER_LANE);
  for (int64_t start = 0; start < depth; start += 8) /* 8 rows at a time: reads and writes go on where they were */
    for (int64_t first = 0; first < N; first += PANEL)
      for (int64_t k = start; k < depth && k < start + 8; k += PER_LANE)
        for (int v = 0; v < VECTORS; v++) {
          int lanes = lanes_of(N - first - v * LANES);
          const ELEMENT *from = matrix + k * stride + first + v * LANES;
          PACKED *to = panels + first * depth + k * PANEL + v * LANES * PER_LANE;
#ifdef PAIRS
          /* The upper row's number in the lower half of each lane. A lane that is not filled counts as zeros. */
          Bits upper = (Bits)LOAD(from, lanes) >> 16, lower = (Bits)LOAD(from + stride, k + 1 < K ? lanes : 0);
          upper |= lower;
          memcpy(to, &upper, sizeof upper);
#else
          STORE_PACKED(to, LOAD(from, lanes), LANES);
#endif
        }
}

/* The same of a transposed matrix: columns 0 to K of N rows. */
static void NAME(pack_transposed)(const ELEMENT *matrix, int64_t stride, int64_t K, int64_t N, PACKED *panels) {
  int64_t depth = round_up(K, PER_LANE);
  for (int64_t first = 0; first < N; first += PANEL, panels += depth * PANEL)
    for (int64_t start = 0; start < depth; start += LANES) /* a tile that stays in the first cache */
      for (int64_t j = 0; j < PANEL; j++)
        for (int64_t k = start; k < depth && k < start + LANES; k++)
          panels[(k / PER_LANE * PANEL + j) * PER_LANE + k % PER_LANE] =
              first + j < N && k < K ? NAME(packed)(matrix[(first + j) * stride + k]) : 0;
}

#if !defined(FLOAT32) && !defined(PAIRS)
#define product_bf16 product_f32
#else
/* `rows` rows of a product with one panel; `rows` is a constant wherever this is called. */
INLINE void NAME(block)(int rows, const PACKED *a, int64_t stride, const PACKED *panel, int64_t depth, float *to,
                        int64_t to_stride, int64_t width, int adds) {
  Vector sums[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) sums[m][v] = all(0);
  for (int64_t k = 0; k < depth; k += PER_LANE, panel += PANEL * PER_LANE) {
    Vector b[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) memcpy(&b[v], panel + v * LANES * PER_LANE, sizeof b[v]); /* each in one load */
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
#ifdef PAIRS
      int32_t pair;
      memcpy(&pair, &a[m * stride + k], sizeof pair);
      __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; v++) sums[m][v] = (Vector)_mm512_dpbf16_ps((__m512)sums[m][v], x, (__m512bh)b[v]);
#else
      Vector x = all(a[m * stride + k]);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; v++) sums[m][v] += x * b[v];
#endif
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) {
      float *at = to + m * to_stride + v * LANES;
      int lanes = lanes_of(width - v * LANES);
      store_f32(at, adds ? sums[m][v] + load_f32(at, lanes) : sums[m][v], lanes);
    }
}

/* a [M, depth], rows `stride` apart and zero (or absent, where depth is even) past K, times packed panels of N columns
 * -> to [M, N], rows `to_stride` apart; `adds` to what is there. */
static __attribute__((noinline)) void NAME(product)(const PACKED *a, int64_t stride, int64_t M, const PACKED *panels,
                                                    int64_t depth, int64_t N, float *to, int64_t to_stride, int adds) {
  for (int64_t first = 0; first < N; first += PANEL, panels += depth * PANEL) {
    int64_t m = 0, width = N - first;
    for (; m + ROWS <= M; m += ROWS)
      NAME(block)(ROWS, a + m * stride, stride, panels, depth, to + m * to_stride + first, to_stride, width, adds);
    for (; m + ROWS / 2 <= M; m += ROWS / 2)
      NAME(block)(ROWS / 2, a + m * stride, stride, panels, depth, to + m * to_stride + first, to_stride, width, adds);
    for (; m < M; m++)
      NAME(block)(1, a + m * stride, stride, panels, depth, to + m * to_stride + first, to_stride, width, adds);
  }
}
#endif

/* from [N, D] -> to [D, N], rows `stride` apart. */
static void NAME(transpose)(const ELEMENT *from, int64_t N, int64_t D, PACKED *to, int64_t stride) {
  for (int64_t start = 0; start < N; start += LANES)
    for (int64_t d = 0; d < D; d++)
      for (int64_t n = start; n < N && n < start + LANES; n++) to[d * stride + n] = NAME(packed)(from[n * D + d]);
}

/* The products of x and h, [K, X] and [K, H], both transposed, and b [K, N] -> elements [X + H, N]. DONE or NO_MEMORY. */
static int NAME(product_of_transposed)(const ELEMENT *x, int64_t X, const ELEMENT *h, int64_t H, const ELEMENT *b, int64_t K,
                                       int64_t N, ELEMENT *to) {
  int64_t most = round_up(K < DEPTH ? K : DEPTH, PER_LANE), stride = STRIDE(most), columns = N < WIDTH ? N : WIDTH, M = X + H;
  PACKED *panels = array_for(PANELS, round_up(columns, PANEL) * most * sizeof(PACKED));
  PACKED *rows = array_for(TRANSPOSED, M * stride * sizeof(PACKED));
  float *sums = array_for(SUMS, M * columns * sizeof(float));
  if (!panels || !rows || !sums) return NO_MEMORY;
  if (!K) memset(sums, 0, M * columns * sizeof(float));
  for (int64_t n = 0; n < N; n += WIDTH) {
    int64_t width = N - n < WIDTH ? N - n : WIDTH;
    for (int64_t k = 0; k < K; k += DEPTH) {
      int64_t depth = K - k < DEPTH ? K - k : DEPTH;
      NAME(pack)(b + k * N + n, N, depth, width, panels);
      NAME(transpose)(x + k * X, depth, X, rows, stride);
      NAME(transpose)(h + k * H, depth, H, rows + X * stride, stride);
      if (depth % PER_LANE)
        for (int64_t m = 0; m < M; m++) rows[m * stride + depth] = 0;
      for (int64_t m = 0; m < M; m += HEIGHT)
        NAME(product)(rows + m * stride, stride, M - m < HEIGHT ? M - m : HEIGHT, panels, round_up(depth, PER_LANE), width,
                      sums + m * width, width, k > 0);
    }
    for (int64_t m = 0; m < M; m++) NAME(store_row)(to + m * N + n, sums + m * width, width);
  }
  return DONE;
}
