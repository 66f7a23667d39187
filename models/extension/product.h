/* Matrix products, a [M, K] times b [K, N], with sums in float32.
 *
 * PANEL columns of b lie together, row after row (with PAIRS pairs of rows), padded with zeros. A block of ROWS rows of
 * a keeps its ROWS * VECTORS vectors of sums in registers while it goes down a panel, which stays in the second cache:
 * it is fetched into the first one ROWS_AHEAD rows before it is used. */

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

/* Bytes of a packed matrix [K, N]. */
static int64_t NAME(packed_bytes)(int64_t K, int64_t N) {
  return round_up(N, PANEL) * round_up(K, PER_LANE) * sizeof(PACKED);
}

/* 4 lanes of a row, packed. */
INLINE Quarter NAME(quarter)(const ELEMENT *from) {
#if defined(FLOAT32) || defined(PAIRS)
  return (Quarter)_mm_loadu_ps((const float *)from);
#else
  return (Quarter)_mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)from)), 16);
#endif
}

/* Rows 0 to K of `matrix`, `stride` apart, N columns -> panels of `vectors` vectors. */
INLINE void NAME(pack_wide)(int vectors, const ELEMENT *matrix, int64_t stride, int64_t K, int64_t N, PACKED *panels) {
  int64_t depth = round_up(K, PER_LANE), panel = vectors * LANES;
  for (int64_t start = 0; start < depth; start += 8) /* 8 rows at a time: reads and writes go on where they were */
    for (int64_t first = 0; first < N; first += panel)
      for (int64_t k = start; k < depth && k < start + 8; k += PER_LANE)
        for (int v = 0; v < vectors; v++) {
          int lanes = lanes_of(N - first - v * LANES);
          const ELEMENT *from = matrix + k * stride + first + v * LANES;
          __builtin_prefetch(from + 8 * stride); /* processors do not prefetch reads this far apart */
          PACKED *to = panels + first * depth + k * panel + v * LANES * PER_LANE;
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
static void NAME(pack)(const ELEMENT *matrix, int64_t stride, int64_t K, int64_t N, PACKED *panels) {
  NAME(pack_wide)(VECTORS, matrix, stride, K, N, panels);
}

/* The same of a transposed matrix: columns 0 to K of N rows. */
static void NAME(pack_transposed)(const ELEMENT *matrix, int64_t stride, int64_t K, int64_t N, PACKED *panels) {
  int64_t depth = round_up(K, PER_LANE);
  for (int64_t first = 0; first < round_up(N, PANEL); first += LANES) {
    const ELEMENT *rows = matrix + first * stride;
    PACKED *to = panels + first / PANEL * PANEL * depth + first % PANEL * PER_LANE;
    int64_t k = 0;
    for (; first + LANES <= N && k + 4 * PER_LANE <= K; k += 4 * PER_LANE) {
      Vector tile[4]; /* each with numbers of every fourth row */
      for (int n = 0; n < 4; n++) {
        Quarter parts[LANES / 4];
        for (int part = 0; part < LANES / 4; part++) {
          const ELEMENT *row = rows + (4 * part + n) * stride + k;
          __builtin_prefetch(row + 256 / sizeof *row);
          parts[part] = NAME(quarter)(row);
        }
        tile[n] = joined(parts);
      }
      transpose(tile);
      for (int n = 0; n < 4; n++) memcpy(to + k * PANEL + n * PANEL * PER_LANE, &tile[n], sizeof tile[n]);
    }
    for (; k < depth; k++)
      for (int64_t n = 0; n < LANES; n++)
        to[k / PER_LANE * PANEL * PER_LANE + n * PER_LANE + k % PER_LANE] =
            first + n < N && k < K ? NAME(packed)(rows[n * stride + k]) : 0;
  }
}

#if !defined(FLOAT32) && !defined(PAIRS)
#define product_bf16 product_f32
#else
/* `rows` rows of a product with one panel; `rows` and `in_panel` are constants wherever this is called. */
INLINE void NAME(block)(int rows, int in_panel, const PACKED *a, int64_t stride, const PACKED *panel, int64_t depth, float *to,
                        int64_t to_stride, int64_t width, int adds) {
  Vector sums[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) sums[m][v] = all(0);
  for (int64_t k = 0; k < depth; k += PER_LANE, panel += PANEL * PER_LANE) {
    Vector b[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) {
      memcpy(&b[v], panel + v * LANES * PER_LANE, sizeof b[v]); /* each in one load */
      __builtin_prefetch(panel + (ROWS_AHEAD * VECTORS + v) * LANES * PER_LANE);
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
#ifdef PAIRS
      int32_t pair;
      memcpy(&pair, in_panel ? &a[k * LANES + m * 2] : &a[m * stride + k], sizeof pair);
      __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; v++) sums[m][v] = (Vector)_mm512_dpbf16_ps((__m512)sums[m][v], x, (__m512bh)b[v]);
#else
      Vector x = all(in_panel ? a[k * LANES + m] : a[m * stride + k]);
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

/* a [M, depth], rows `stride` apart and zero (or absent, where depth is even) past K, or in panels of LANES rows if
 * `stride` is IN_PANELS, times packed panels of N columns -> to [M, N], rows `to_stride` apart; `adds` to what is there. */
INLINE void NAME(blocks)(int in_panels, const PACKED *a, int64_t stride, int64_t M, const PACKED *panels, int64_t depth,
                         int64_t N, float *to, int64_t to_stride, int adds) {
#define ROW(m) (in_panels ? a + (m) / LANES * LANES * depth + (m) % LANES * PER_LANE : a + (m) * stride)
  for (int64_t first = 0; first < N; first += PANEL, panels += depth * PANEL) {
    int64_t m = 0, width = N - first;
    for (; m + ROWS <= M; m += ROWS)
      NAME(block)(ROWS, in_panels, ROW(m), stride, panels, depth, to + m * to_stride + first, to_stride, width, adds);
    for (; m + ROWS / 2 <= M; m += ROWS / 2)
      NAME(block)(ROWS / 2, in_panels, ROW(m), stride, panels, depth, to + m * to_stride + first, to_stride, width, adds);
    for (; m < M; m++)
      NAME(block)(1, in_panels, ROW(m), stride, panels, depth, to + m * to_stride + first, to_stride, width, adds);
  }
#undef ROW
}
static __attribute__((noinline)) void NAME(product)(const PACKED *a, int64_t stride, int64_t M, const PACKED *panels,
                                                    int64_t depth, int64_t N, float *to, int64_t to_stride, int adds) {
  if (stride == IN_PANELS)
    NAME(blocks)(1, a, stride, M, panels, depth, N, to, to_stride, adds);
  else
    NAME(blocks)(0, a, stride, M, panels, depth, N, to, to_stride, adds);
}
#endif

/* Columns n to n + width of a matrix [K, N], or of a transposed one [N, K] -> panels of DEPTH rows, and then of the next. */
static void NAME(pack_columns)(const ELEMENT *b, int is_transposed, int64_t K, int64_t N, int64_t n, int64_t width,
                               PACKED *panels) {
  for (int64_t k = 0; k < K; k += DEPTH, panels += DEPTH * round_up(width, PANEL)) {
    int64_t depth = K - k < DEPTH ? K - k : DEPTH;
    if (is_transposed)
      NAME(pack_transposed)(b + n * K + k, K, depth, width, panels);
    else
      NAME(pack)(b + k * N + n, N, depth, width, panels);
  }
}

/* How many numbers `space` of `multiply` holds, for M rows of K. */
static int64_t NAME(space)(int64_t M, int64_t K) { return round_up(M, LANES) * STRIDE(K < DEPTH ? K : DEPTH); }

/* a [M, K], or a transposed one [K, M], rows `stride` apart, times what `pack_columns` packed -> to [M, width]. */
static void NAME(multiply)(const ELEMENT *a, int is_transposed, int64_t stride, int64_t M, const PACKED *panels, int64_t K,
                           int64_t width, PACKED *space, float *to, int64_t to_stride) {
  for (int64_t k = 0; !k || k < K; k += DEPTH, panels += DEPTH * round_up(width, PANEL)) { /* K = 0: once, zeros */
    int64_t depth = K - k < DEPTH ? K - k : DEPTH, apart = is_transposed ? IN_PANELS : STRIDE(depth);
    if (is_transposed) NAME(pack_wide)(1, a + k * stride, stride, depth, M, space);
    for (int64_t m = 0; m < M && !is_transposed; m++) {
      NAME(pack_row)(space + m * apart, a + m * stride + k, depth);
      if (depth % PER_LANE) space[m * apart + depth] = 0;
    }
    NAME(product)(space, apart, M, panels, round_up(depth, PER_LANE), width, to, to_stride, k > 0);
  }
}

/* x [K, X] and h [K, H] next to each other, transposed, times b [K, N] -> [X + H, N]. DONE or NO_MEMORY. */
static int NAME(product_of_transposed)(const ELEMENT *x, int64_t X, const ELEMENT *h, int64_t H, const ELEMENT *b, int64_t K,
                                       int64_t N, ELEMENT *to) {
  int64_t columns = N < WIDTH ? N : WIDTH;
  PACKED *panels = array_for(PANELS, NAME(packed_bytes)(K, columns));
  PACKED *space = array_for(SPACE, NAME(space)(HEIGHT, K) * sizeof(PACKED));
  float *sums = array_for(SUMS, HEIGHT * columns * sizeof(float));
  if (!panels || !space || !sums) return NO_MEMORY;
  for (int64_t n = 0; n < N; n += WIDTH) {
    int64_t width = N - n < WIDTH ? N - n : WIDTH;
    NAME(pack_columns)(b, 0, K, N, n, width, panels);
    for (int64_t m = 0, height; m < X + H; m += height) {
      const ELEMENT *a = m < X ? x + m : h + m - X;
      int64_t of = m < X ? X : H, left = m < X ? X - m : X + H - m;
      height = left < HEIGHT ? left : HEIGHT;
      NAME(multiply)(a, 1, of, height, panels, K, width, space, sums, columns);
      for (int64_t r = 0; r < height; r++) NAME(store_row)(to + (m + r) * N + n, sums + r * columns, width);
    }
  }
  return DONE;
}

/* a [M, K] times a transposed b [N, K] -> [M, N]. DONE or NO_MEMORY. */
static int NAME(product_with_transposed)(const ELEMENT *a, int64_t M, int64_t K, const ELEMENT *b, int64_t N, ELEMENT *to) {
  int64_t columns = N < WIDTH ? N : WIDTH;
  PACKED *panels = array_for(PANELS, NAME(packed_bytes)(round_up(K, DEPTH), columns));
  PACKED *space = array_for(SPACE, NAME(space)(HEIGHT, K) * sizeof(PACKED));
  float *sums = array_for(SUMS, HEIGHT * columns * sizeof(float));
  if (!panels || !space || !sums) return NO_MEMORY;
  for (int64_t n = 0; n < N; n += WIDTH) {
    int64_t width = N - n < WIDTH ? N - n : WIDTH;
    NAME(pack_columns)(b, 1, K, N, n, width, panels);
    for (int64_t m = 0; m < M; m += HEIGHT) {
      int64_t height = M - m < HEIGHT ? M - m : HEIGHT;
      NAME(multiply)(a + m * K, 0, K, height, panels, K, width, space, sums, columns);
      for (int64_t r = 0; r < height; r++) NAME(store_row)(to + (m + r) * N + n, sums + r * columns, width);
    }
  }
  return DONE;
}
