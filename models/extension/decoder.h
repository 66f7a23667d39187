/* All steps of a decoder of L layers of LSTM cells (lstm.h) that attends to S source words (attention.h).
 *
 * luong (v is empty): layer 0 reads the previous step's output, the last layer's h is the query, and the output, `made`, is
 * tanh([context, h] matrix). bahdanau: the query, `made`, is the previous step's h of the last layer times matrix, and
 * layer 0 reads its context. Each layer's input is multiplied by `dropped`, unless that is empty. */

#ifdef FLOAT32
enum { MOST_LAYERS = 128 }; /* of --num_decoder_layers */

/* The width of what the first layer reads, or -1 if the sizes do not agree. */
static int64_t width_read(const int64_t *sizes) {
  int64_t L = SIZE('L'), U = SIZE('U'), D = SIZE('D'), is_luong = !SIZE('V'), F = is_luong ? U : D;
  int fits = L > 0 && L <= MOST_LAYERS && SIZE('G') == 4 * U && (is_luong || SIZE('V') == U);
  fits = fits && SIZE('R') == F + U * (2 * L - 1) && SIZE('W') == (is_luong ? D + U : U);
  return fits && (!SIZE('M') || SIZE('M') == SIZE('T') * SIZE('B') * (F + U * (L - 1))) ? F : -1;
}

static int64_t larger_of(int64_t x, int64_t y) { return x > y ? x : y; }

static void add_rows(float *to, int64_t to_stride, const float *x, int64_t stride, int64_t rows, int64_t count) {
  for (int64_t row = 0; row < rows; row++)
    for (int64_t n = 0; n < count; n++) to[row * to_stride + n] += x[row * stride + n];
}
#endif

/* Packed kernels of all layers and the packed matrix, with space for B rows of any product. */
typedef struct {
  int64_t inputs[MOST_LAYERS]; /* K of each layer */
  PACKED *panels[MOST_LAYERS], *of_matrix, *rows;
  float *sums;
} NAME(Packed);

static int NAME(pack_decoder)(const int64_t *sizes, int is_transposed, const ELEMENT *kernels, const ELEMENT *matrix,
                              NAME(Packed) *packed) {
  int64_t L = SIZE('L'), B = SIZE('B'), U = SIZE('U'), G = SIZE('G'), W = SIZE('W'), offsets[MOST_LAYERS + 1] = {0};
  int64_t most = STRIDE(larger_of(larger_of(G, W), larger_of(width_read(sizes), U) + U));
  for (int64_t l = 0; l < L; l++) {
    int64_t K = packed->inputs[l] = (l ? U : width_read(sizes)) + U;
    offsets[l + 1] = offsets[l] + round_up(is_transposed ? NAME(packed_bytes)(G, K) : NAME(packed_bytes)(K, G), ALIGNMENT);
  }
  char *panels = array_for(LAYER_PANELS, offsets[L]);
  packed->of_matrix = array_for(PANELS, is_transposed ? NAME(packed_bytes)(U, W) : NAME(packed_bytes)(W, U));
  packed->rows = array_for(SPACE, B * most * sizeof(PACKED)), packed->sums = array_for(STEP_SUMS, B * most * sizeof(float));
  if (!panels || !packed->of_matrix || !packed->rows || !packed->sums) return NO_MEMORY;
  for (int64_t l = 0; l < L; kernels += packed->inputs[l++] * G) {
    packed->panels[l] = (PACKED *)(panels + offsets[l]);
    if (is_transposed)
      NAME(pack_transposed)(kernels, G, G, packed->inputs[l], packed->panels[l]);
    else
      NAME(pack)(kernels, G, packed->inputs[l], G, packed->panels[l]);
  }
  if (is_transposed)
    NAME(pack_transposed)(matrix, U, U, W, packed->of_matrix);
  else
    NAME(pack)(matrix, U, W, U, packed->of_matrix);
  return DONE;
}

/* B rows [x, h], x multiplied by `dropped` where there is one, times panels of N columns -> packed->sums, rows STRIDE(N)
 * apart. No x: zeros. */
static void NAME(decoder_product)(const NAME(Packed) *packed, int64_t B, const float *x, int64_t X, const float *dropped,
                                  const float *h, int64_t U, const PACKED *panels, int64_t N) {
  int64_t K = X + U, stride = STRIDE(K);
  for (int64_t b = 0; b < B; b++) {
    PACKED *row = packed->rows + b * stride;
    row[K] = 0;
    for (int64_t n = 0; n < X; n += LANES) {
      int lanes = lanes_of(X - n);
      Vector value = x ? load_f32(x + b * X + n, lanes) : all(0);
      if (dropped) value *= load_f32(dropped + b * X + n, lanes);
      STORE_PACKED(row + n, ROUND(value), lanes);
    }
    for (int64_t n = 0; n < U; n += LANES)
      STORE_PACKED(row + X + n, ROUND(load_f32(h + b * U + n, lanes_of(U - n))), lanes_of(U - n));
  }
  NAME(product)(packed->rows, stride, B, panels, round_up(K, PER_LANE), N, packed->sums, STRIDE(N), 0);
}

static int NAME(decode)(const int64_t *sizes, void **data) {
  int64_t L = SIZE('L'), T = SIZE('T'), B = SIZE('B'), U = SIZE('U'), G = SIZE('G'), S = SIZE('S'), D = SIZE('D');
  int64_t F = width_read(sizes), is_luong = !SIZE('V');
  const ELEMENT *from_words = data[0];
  const float *biases = data[1], *first_c = data[3], *first_h = data[4], *dropped = SIZE('M') ? data[10] : NULL;
  float *all_gates = data[11], *cs = data[12], *hs = data[13];
  NAME(Packed) packed;
  if (F < 0) return WRONG_SIZES;
  if (NAME(pack_decoder)(sizes, 0, data[2], data[9], &packed)) return NO_MEMORY;
  for (int64_t t = 0; t < T; t++) {
    const float *top = t ? hs + ((L - 1) * T + t - 1) * B * U : first_h + (L - 1) * B * U, *x = NULL;
    float *shares = (float *)data[14] + t * B * S, *context = (float *)data[15] + t * B * D;
    float *step = (float *)data[16] + t * B * U;
    void *attended[] = {step, data[5], data[6], data[7], data[8], context, shares};
    if (!is_luong) {
      NAME(decoder_product)(&packed, B, NULL, 0, NULL, top, U, packed.of_matrix, U);
      for (int64_t b = 0; b < B; b++) memcpy(step + b * U, packed.sums + b * STRIDE(U), U * sizeof(float));
      if (NAME(attend)(sizes, attended)) return NO_MEMORY;
      x = context;
    } else if (t) {
      x = step - B * U;
    }
    for (int64_t l = 0; l < L; l++) {
      int64_t X = packed.inputs[l] - U;
      const float *kept = dropped ? dropped + (l ? T * B * (F + (l - 1) * U) : 0) + t * B * X : NULL;
      const float *h_before = t ? hs + (l * T + t - 1) * B * U : first_h + l * B * U;
      const float *c_before = t ? cs + (l * T + t - 1) * B * U : first_c + l * B * U;
      float *gates = all_gates + (l * T + t) * B * G, *c = cs + (l * T + t) * B * U, *h = hs + (l * T + t) * B * U;
      NAME(decoder_product)(&packed, B, x, X, kept, h_before, U, packed.panels[l], G);
      for (int64_t b = 0; b < B; b++)
        for (int64_t u = 0; u < U; u += LANES) {
          int lanes = lanes_of(U - u);
          Vector sums[4];
          for (int64_t n = 0, g = u; n < 4; n++, g += U) {
            sums[n] = load_f32(packed.sums + b * STRIDE(G) + g, lanes) + load_f32(biases + l * G + g, lanes);
            if (!l) sums[n] += LOAD(from_words + (t * B + b) * G + g, lanes);
          }
          Vector before = load_f32(c_before + b * U + u, lanes);
          store_f32(h + b * U + u, NAME(cell)(sums, before, U, lanes, gates + b * G + u, c + b * U + u), lanes);
        }
      x = h;
    }
    if (is_luong) {
      attended[0] = (float *)x;
      if (NAME(attend)(sizes, attended)) return NO_MEMORY;
      NAME(decoder_product)(&packed, B, context, D, NULL, x, U, packed.of_matrix, U);
      for (int64_t b = 0; b < B; b++)
        for (int64_t u = 0; u < U; u += LANES)
          store_f32(step + b * U + u, tangent(load_f32(packed.sums + b * STRIDE(U) + u, lanes_of(U - u))), lanes_of(U - u));
    }
  }
  return DONE;
}

static int NAME(decode_grad)(const int64_t *sizes, void **data) {
  int64_t L = SIZE('L'), T = SIZE('T'), B = SIZE('B'), U = SIZE('U'), G = SIZE('G'), S = SIZE('S'), D = SIZE('D');
  int64_t F = width_read(sizes), is_luong = !SIZE('V'), stride = STRIDE(SIZE('W'));
  const float *first_c = data[1], *dropped = SIZE('M') ? data[6] : NULL, *gates = data[7], *cs = data[8], *hs = data[9];
  ELEMENT *d_gates = data[15];
  float *d_biases = data[16], *d_c = data[20], *d_h = data[21], *d_top = d_h + (L - 1) * B * U;
  NAME(Packed) packed;
  if (F < 0) return WRONG_SIZES;
  float *d_read = array_for(STATES, B * F * sizeof(float)), *d_query = array_for(SUMS, B * U * sizeof(float));
  int32_t *lengths = array_for(GATES, B * sizeof *lengths);
  if (!d_read || !d_query || !lengths || NAME(pack_decoder)(sizes, 1, data[0], data[5], &packed)) return NO_MEMORY;
  memset(d_read, 0, B * F * sizeof(float)), memset(d_biases, 0, L * G * sizeof(float));
  memset(data[22], 0, B * S * SIZE('V') * sizeof(float)), memset(data[23], 0, SIZE('V') * sizeof(float));
  memset(d_c, 0, L * B * U * sizeof(float)), memset(d_h, 0, L * B * U * sizeof(float));
  memset(lengths, 0, B * sizeof *lengths); /* so that `gates_back` reads no d_outputs and d_last: d_h has all */
  for (int64_t t = T - 1; t >= 0; t--) {
    const float *step = (const float *)data[11] + t * B * U, *h = hs + ((L - 1) * T + t) * B * U;
    float *d_scores = (float *)data[17] + t * B * S, *d_step = (float *)data[18] + t * B * U;
    float *d_context = (float *)data[19] + t * B * D;
    void *attended[] = {(float *)h, data[2], data[3], data[4], (float *)data[10] + t * B * S, d_context, d_scores, d_query,
                        data[22], data[23]};
    memcpy(d_context, (const float *)data[12] + t * B * D, B * D * sizeof(float));
    memcpy(d_step, (const float *)data[14] + t * B * U, B * U * sizeof(float));
    add_rows(d_top, U, (const float *)data[13] + t * B * U, U, B, U);
    if (is_luong) {
      for (int64_t n = 0; n < B * U; n++) d_step[n] = (d_step[n] + d_read[n]) * (1 - step[n] * step[n]);
      NAME(decoder_product)(&packed, B, NULL, 0, NULL, d_step, U, packed.of_matrix, SIZE('W'));
      add_rows(d_context, D, packed.sums, stride, B, D), add_rows(d_top, U, packed.sums + D, stride, B, U);
      if (NAME(attend_grad)(sizes, attended)) return NO_MEMORY;
      add_rows(d_top, U, d_query, U, B, U);
    }
    for (int64_t l = L - 1; l >= 0; l--) {
      int64_t K = packed.inputs[l], X = K - U, at = t * B * X;
      LstmLayer layer = {.B = B, .U = U, .lengths = lengths, .first_c = first_c + l * B * U, .cs = (float *)cs + l * T * B * U,
                         .gates = (float *)gates + l * T * B * G, .d_bias = d_biases + l * G, .d_c = d_c + l * B * U};
      NAME(gates_back)(&layer, t, d_h + l * B * U, U, packed.rows, d_gates + (l * T + t) * B * G);
      NAME(product)(packed.rows, STRIDE(G), B, packed.panels[l], G, K, packed.sums, STRIDE(K), 0);
      float *d_x = l ? d_h + (l - 1) * B * U : d_read;
      const float *kept = dropped ? dropped + (l ? T * B * (F + (l - 1) * U) : 0) + at : NULL;
      for (int64_t b = 0; b < B; b++) {
        const float *sums = packed.sums + b * STRIDE(K);
        for (int64_t n = 0; n < X; n++)
          d_x[b * X + n] = (l ? d_x[b * X + n] : 0) + (kept ? kept[b * X + n] * sums[n] : sums[n]);
        memcpy(d_h + (l * B + b) * U, sums + X, U * sizeof(float));
      }
    }
    if (!is_luong) {
      attended[0] = (float *)step;
      add_rows(d_context, D, d_read, F, B, D);
      if (NAME(attend_grad)(sizes, attended)) return NO_MEMORY;
      add_rows(d_step, U, d_query, U, B, U);
      NAME(decoder_product)(&packed, B, NULL, 0, NULL, d_step, U, packed.of_matrix, U);
      add_rows(d_top, U, packed.sums, stride, B, U);
    }
  }
  return DONE;
}
