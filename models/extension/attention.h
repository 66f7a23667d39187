/* What one step of a decoder with attention needs, in float32 but for products, whose factors are elements. Arguments
 * are the sizes of dimensions by letter, then inputs and outputs in the order in which kernels.c lists them. */

/* x [B, K] times the matrix of the panels, [K, N]; what is added has all B rows or none. */
static int NAME(step_product)(const int64_t *sizes, void **data) {
  int64_t B = SIZE('B'), K = SIZE('K'), N = SIZE('N'), stride = STRIDE(K);
  const float *x = data[0];
  PACKED *rows = array_for(STEP, B * stride * sizeof(PACKED));
  int adds = SIZE('A') == B;
  if (SIZE('P') != NAME(packed_bytes)(K, N) || (SIZE('A') && !adds)) return WRONG_SIZES;
  if (!rows) return NO_MEMORY;
  memset(rows, 0, B * stride * sizeof(PACKED));
  for (int64_t b = 0; b < B; b++)
    for (int64_t k = 0; k < K; k += LANES)
      STORE_PACKED(rows + b * stride + k, ROUND(load_f32(x + b * K + k, lanes_of(K - k))), lanes_of(K - k));
  if (adds) memcpy(data[3], data[2], B * N * sizeof(float));
  NAME(product)(rows, stride, B, data[1], round_up(K, PER_LANE), N, data[3], N, adds);
  return DONE;
}

/* Sums of the gates, c -> gates, the next c and h. */
static int NAME(step_gates)(const int64_t *sizes, void **data) {
  int64_t U = SIZE('U');
  for (int64_t b = 0; b < SIZE('B') && SIZE('G') == 4 * U; b++)
    for (int64_t u = 0; u < U; u += LANES) {
      int lanes = lanes_of(U - u);
      int64_t at = b * U + u, gate = 4 * b * U + u;
      Vector sums[4];
      for (int n = 0; n < 4; n++) sums[n] = load_f32((float *)data[0] + gate + n * U, lanes);
      Vector c = load_f32((float *)data[1] + at, lanes);
      Vector h = NAME(cell)(sums, c, U, lanes, (float *)data[2] + gate, (float *)data[3] + at);
      store_f32((float *)data[4] + at, h, lanes);
    }
  return SIZE('G') == 4 * U ? DONE : WRONG_SIZES;
}

/* Gates, c before and after, gradients of that c and of h -> gradients of the sums and of the c before. */
static int NAME(step_gates_grad)(const int64_t *sizes, void **data) {
  int64_t U = SIZE('U');
  for (int64_t b = 0; b < SIZE('B') && SIZE('G') == 4 * U; b++)
    for (int64_t u = 0; u < U; u += LANES) {
      int lanes = lanes_of(U - u);
      int64_t at = b * U + u, gate = 4 * b * U + u;
      Vector d[4], given[4]; /* c before, c, their gradients */
      for (int n = 0; n < 4; n++) given[n] = load_f32((float *)data[1 + n] + at, lanes);
      Vector d_c = NAME(cell_back)((float *)data[0] + gate, given[0], given[1], U, lanes, given[3], given[2], d);
      for (int n = 0; n < 4; n++) store_f32((float *)data[5] + gate + n * U, d[n], lanes);
      store_f32((float *)data[6] + at, d_c, lanes);
    }
  return SIZE('G') == 4 * U ? DONE : WRONG_SIZES;
}

/* sum of x y */
INLINE float NAME(dot)(const float *x, const ELEMENT *y, int64_t count) {
  Vector sum = all(0);
  for (int64_t n = 0; n < count; n += LANES) sum += load_f32(x + n, lanes_of(count - n)) * LOAD(y + n, lanes_of(count - n));
  return sum_of_lanes(sum);
}

/* to += scale x */
INLINE void NAME(add_scaled)(float *to, float scale, const ELEMENT *x, int64_t count) {
  for (int64_t n = 0; n < count; n += LANES) {
    int lanes = lanes_of(count - n);
    store_f32(to + n, load_f32(to + n, lanes) + scale * LOAD(x + n, lanes), lanes);
  }
}

INLINE float NAME(rounded)(float x) { return ROUND(all(x))[0]; }

static void NAME(round_row)(float *to, const float *from, int64_t count) {
  for (int64_t n = 0; n < count; n += LANES)
    store_f32(to + n, ROUND(load_f32(from + n, lanes_of(count - n))), lanes_of(count - n));
}

/* query, keys, memory, mask, v -> context, shares. Scores are v tanh(query + key), or query times key where v is empty. */
static int NAME(attend)(const int64_t *sizes, void **data) {
  int64_t B = SIZE('B'), S = SIZE('S'), U = SIZE('U'), D = SIZE('D');
  const ELEMENT *keys = data[1], *memory = data[2], *v = data[4];
  float *context = data[5], *shares = data[6], *query = array_for(STEP, U * sizeof(float));
  for (int64_t b = 0; b < B && query; b++, shares += S, context += D) {
    float largest = -__builtin_inff(), total = 0;
    NAME(round_row)(query, (const float *)data[0] + b * U, U);
    for (int64_t s = 0; s < S; s++, keys += U) {
      Vector sum = all(0);
      for (int64_t u = 0; u < U && SIZE('V') == U; u += LANES) {
        int lanes = lanes_of(U - u);
        sum += LOAD(v + u, lanes) * tangent(load_f32(query + u, lanes) + LOAD(keys + u, lanes));
      }
      float score = SIZE('V') == U ? sum_of_lanes(sum) : NAME(dot)(query, keys, U);
      shares[s] = score + ((const float *)data[3])[b * S + s];
      largest = shares[s] > largest ? shares[s] : largest;
    }
    for (int64_t s = 0; s < S; s += LANES) {
      int lanes = lanes_of(S - s);
      Vector e = exponential(load_f32(shares + s, lanes) - largest);
      store_f32(shares + s, e, lanes);
      total += sum_of_lanes(filled(e, lanes, 0));
    }
    memset(context, 0, D * sizeof(float));
    for (int64_t s = 0; s < S; s++, memory += D) {
      shares[s] /= total;
      NAME(add_scaled)(context, NAME(rounded)(shares[s]), memory, D);
    }
  }
  return query ? DONE : NO_MEMORY;
}

/* query, keys, memory, v, shares, d_context -> gradients of the scores and of the query. */
static int NAME(attend_grad)(const int64_t *sizes, void **data) {
  int64_t B = SIZE('B'), S = SIZE('S'), U = SIZE('U'), D = SIZE('D');
  const ELEMENT *keys = data[1], *memory = data[2], *v = data[3];
  const float *shares = data[4];
  float *d_scores = data[6], *d_query = data[7], *query = array_for(STEP, (U + D) * sizeof(float)), *d_context = query + U;
  memset(d_query, 0, B * U * sizeof(float));
  for (int64_t b = 0; b < B && query; b++, shares += S, d_scores += S, d_query += U) {
    float mean = 0;
    NAME(round_row)(query, (const float *)data[0] + b * U, U);
    NAME(round_row)(d_context, (const float *)data[5] + b * D, D);
    for (int64_t s = 0; s < S; s++, memory += D) {
      d_scores[s] = NAME(dot)(d_context, memory, D);
      mean += shares[s] * d_scores[s];
    }
    for (int64_t s = 0; s < S; s++, keys += U) {
      d_scores[s] = shares[s] * (d_scores[s] - mean);
      float d = NAME(rounded)(d_scores[s]);
      if (SIZE('V') != U) NAME(add_scaled)(d_query, d, keys, U);
      for (int64_t u = 0; u < U && SIZE('V') == U; u += LANES) {
        int lanes = lanes_of(U - u);
        Vector y = tangent(load_f32(query + u, lanes) + LOAD(keys + u, lanes));
        store_f32(d_query + u, load_f32(d_query + u, lanes) + d * LOAD(v + u, lanes) * (1.0f - y * y), lanes);
      }
    }
  }
  return query ? DONE : NO_MEMORY;
}

/* After all steps: queries, keys, v, d_scores -> gradients of the keys and of v. */
static int NAME(additive_grad)(const int64_t *sizes, void **data) {
  int64_t T = SIZE('T'), B = SIZE('B'), S = SIZE('S'), U = SIZE('U');
  const float *queries = data[0], *d_scores = data[3];
  const ELEMENT *keys = data[1], *v = data[2];
  ELEMENT *d_keys = data[4];
  float *d_v = data[5];
  memset(d_v, 0, U * sizeof(float));
  for (int64_t row = 0; row < B * S; row++)
    for (int64_t u = 0; u < U; u += LANES) {
      int lanes = lanes_of(U - u);
      Vector key = LOAD(keys + row * U + u, lanes), d_key = all(0), d_of_v = all(0);
      for (int64_t t = 0; t < T; t++) {
        Vector y = tangent(ROUND(load_f32(queries + (t * B + row / S) * U + u, lanes)) + key);
        Vector d = ROUND(all(d_scores[t * B * S + row]));
        d_key += d * (1.0f - y * y);
        d_of_v += d * y;
      }
      STORE(d_keys + row * U + u, d_key * LOAD(v + u, lanes), lanes);
      store_f32(d_v + u, load_f32(d_v + u, lanes) + d_of_v, lanes);
    }
  return DONE;
}

static void NAME(pack_both)(const void *matrix, int64_t K, int64_t N, void *panels, void *transposed) {
  NAME(pack)(matrix, N, K, N, panels);
  NAME(pack_transposed)(matrix, N, N, K, transposed);
}
