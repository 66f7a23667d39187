/* How a decoder attends to S source words, in float32 but for products, whose factors are elements. Arguments are the
 * sizes of dimensions by letter, then inputs and outputs in the order that a comment or the list in kernels.c gives. */

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

/* query, keys, memory, v, shares, d_context -> gradients of the scores and of the query; where v is not empty, those of the
 * keys and of v are added to what is there. */
static int NAME(attend_grad)(const int64_t *sizes, void **data) {
  int64_t B = SIZE('B'), S = SIZE('S'), U = SIZE('U'), D = SIZE('D');
  const ELEMENT *keys = data[1], *memory = data[2], *v = data[3];
  const float *shares = data[4];
  float *d_scores = data[6], *d_query = data[7], *d_keys = data[8], *d_v = data[9];
  float *query = array_for(STEP, (U + D) * sizeof(float));
  if (!query) return NO_MEMORY;
  float *d_context = query + U;
  memset(d_query, 0, B * U * sizeof(float));
  for (int64_t b = 0; b < B; b++, shares += S, d_scores += S, d_query += U) {
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
        Vector d_sum = d * LOAD(v + u, lanes) * (1.0f - y * y);
        store_f32(d_query + u, load_f32(d_query + u, lanes) + d_sum, lanes);
        store_f32(d_keys + u, load_f32(d_keys + u, lanes) + d_sum, lanes);
        store_f32(d_v + u, load_f32(d_v + u, lanes) + d * y, lanes);
      }
      d_keys += SIZE('V');
    }
  }
  return DONE;
}
