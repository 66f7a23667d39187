/* All steps of one LSTM layer (layers.h). G = 4U gates; K = D + U numbers of input and state meet the kernel in one
 * product a step. */

/* Sums [4U] of one sentence -> its gates, c and h, `lanes` units of each; c as of the step before. */
INLINE Vector NAME(cell)(const Vector *sums, Vector c, int64_t U, int lanes, float *gate, float *to_c) {
  Vector i = sigmoid(sums[0]), ci = tangent(sums[1]), f = sigmoid(sums[2]), o = sigmoid(sums[3]);
  c = f * c + i * ci;
  store_f32(gate, i, lanes);
  store_f32(gate + U, ci, lanes);
  store_f32(gate + 2 * U, f, lanes);
  store_f32(gate + 3 * U, o, lanes);
  store_f32(to_c, c, lanes);
  return o * tangent(c);
}

/* Back: d_out and d_cell of h and c -> d of the sums, and that of the c before. */
INLINE Vector NAME(cell_back)(const float *gate, Vector c_before, Vector c, int64_t U, int lanes, Vector d_out,
                              Vector d_cell, Vector *d) {
  Vector i = load_f32(gate, lanes), ci = load_f32(gate + U, lanes);
  Vector f = load_f32(gate + 2 * U, lanes), o = load_f32(gate + 3 * U, lanes), co = tangent(c);
  d_cell += d_out * o * (1.0f - co * co);
  d[0] = d_cell * ci * (i - i * i), d[1] = d_cell * i * (1.0f - ci * ci);
  d[2] = d_cell * c_before * (f - f * f), d[3] = d_out * co * (o - o * o);
  return d_cell * f;
}

static int NAME(lstm)(const LstmLayer *layer) {
  int64_t T = layer->T, B = layer->B, D = layer->D, U = layer->U, G = 4 * U, K = D + U;
  int64_t depth = round_up(K, PER_LANE), stride = STRIDE(K), width = STRIDE(G);
  PACKED *panels = array_for(LAYER_PANELS, NAME(packed_bytes)(K, G));
  PACKED *xh = array_for(STEP, B * stride * sizeof(PACKED));
  float *sums = array_for(STEP_SUMS, B * width * sizeof(float));
  if (!panels || !xh || !sums) return NO_MEMORY;
  NAME(pack)(layer->kernel, G, K, G, panels);
  memset(xh, 0, B * stride * sizeof(PACKED));
  memcpy(layer->last_c, layer->first_c, B * U * sizeof(float));
  memcpy(layer->last_h, layer->first_h, B * U * sizeof(float));
  for (int64_t b = 0; b < B; b++) NAME(pack_floats)(xh + b * stride + D, layer->first_h + b * U, U);
  for (int64_t t = 0; t < T; t++) {
    const float *c_before = t ? layer->cs + (t - 1) * B * U : layer->first_c, *bias = layer->bias;
    for (int64_t b = 0; b < B; b++)
      NAME(pack_row)(xh + b * stride, (const ELEMENT *)layer->x + (t * B + b) * D, D);
    NAME(product)(xh, stride, B, panels, depth, G, sums, width, 0);
    for (int64_t b = 0; b < B; b++)
      for (int64_t u = 0; u < U; u += LANES) {
        int lanes = lanes_of(U - u);
        const float *sum = sums + b * width + u;
        Vector all_sums[4], c_before_u = load_f32(c_before + b * U + u, lanes);
        for (int n = 0; n < 4; n++) all_sums[n] = load_f32(sum + n * U, lanes) + load_f32(bias + n * U + u, lanes);
        float *c = layer->cs + (t * B + b) * U + u;
        Vector h = NAME(cell)(all_sums, c_before_u, U, lanes, layer->gates + (t * B + b) * G + u, c);
        STORE_PACKED(xh + b * stride + D + u, ROUND(h), lanes);
        STORE((ELEMENT *)layer->outputs + (t * B + b) * U + u, t < layer->lengths[b] ? h : all(0), lanes);
        if (t + 1 == layer->lengths[b]) {
          store_f32(layer->last_c + b * U + u, load_f32(c, lanes), lanes);
          store_f32(layer->last_h + b * U + u, h, lanes);
        }
      }
  }
  return DONE;
}

/* Step t's gradients of the gates before their nonlinearity -> d_step [B, STRIDE(G)] and d_gates [B, G]; d_c becomes that
 * of the step before, d_bias is added to; d_h: rows of `width`. */
static void NAME(gates_back)(const LstmLayer *layer, int64_t t, const float *d_h, int64_t width, PACKED *d_step,
                             ELEMENT *d_gates) {
  int64_t B = layer->B, U = layer->U, step = t * B * U;
  const float *c_before = t ? layer->cs + step - B * U : layer->first_c;
  for (int64_t b = 0; b < B; b++)
    for (int64_t u = 0; u < U; u += LANES) {
      int lanes = lanes_of(U - u);
      int64_t at = b * U + u;
      Vector d_out = load_f32(d_h + b * width + u, lanes), d_cell = load_f32(layer->d_c + at, lanes);
      if (t < layer->lengths[b]) d_out += LOAD((const ELEMENT *)layer->d_outputs + step + at, lanes);
      if (t + 1 == layer->lengths[b]) {
        d_out += load_f32(layer->d_last_h + at, lanes);
        d_cell = load_f32(layer->d_last_c + at, lanes);
      }
      Vector d[4], c = load_f32(layer->cs + step + at, lanes), before = load_f32(c_before + at, lanes);
      d_cell = NAME(cell_back)(layer->gates + 4 * step + b * 4 * U + u, before, c, U, lanes, d_out, d_cell, d);
      store_f32(layer->d_c + at, d_cell, lanes);
      for (int n = 0; n < 4; n++) {
        float *sum = layer->d_bias + n * U + u;
        store_f32(sum, load_f32(sum, lanes) + d[n], lanes);
        STORE_PACKED(d_step + b * STRIDE(4 * U) + n * U + u, ROUND(d[n]), lanes);
        STORE(d_gates + b * 4 * U + n * U + u, d[n], lanes);
      }
    }
}

static int NAME(lstm_grad)(const LstmLayer *layer) {
  int64_t T = layer->T, B = layer->B, D = layer->D, U = layer->U, G = 4 * U;
  int64_t N = T * B, width = STRIDE(U);
  PACKED *panels = array_for(LAYER_PANELS, NAME(packed_bytes)(G, U));
  PACKED *step = array_for(STEP, B * STRIDE(G) * sizeof(PACKED));
  ELEMENT *d_gates = array_for(GATES, N * G * sizeof(ELEMENT)), *h = array_for(STATES, N * U * sizeof(ELEMENT));
  float *sums = array_for(STEP_SUMS, B * width * sizeof(float));
  if (!panels || !step || !d_gates || !h || !sums) return NO_MEMORY;
  /* A step needs only the states' rows of the kernel, which stay in the second cache. */
  NAME(pack_transposed)((const ELEMENT *)layer->kernel + D * G, G, G, U, panels);
  memset(sums, 0, B * width * sizeof(float));
  memset(layer->d_c, 0, B * U * sizeof(float));
  memset(layer->d_bias, 0, G * sizeof(float));
  for (int64_t t = T - 1; t >= 0; t--) {
    NAME(gates_back)(layer, t, sums, width, step, d_gates + t * B * G);
    NAME(product)(step, STRIDE(G), B, panels, G, U, sums, width, 0);
  }
  for (int64_t b = 0; b < B; b++) memcpy(layer->d_h + b * U, sums + b * width, U * sizeof(float));
  /* The inputs' and the kernel's gradients in one product each; the latter of the inputs and of the states before each step,
   * transposed, and the gates' gradients. */
  NAME(store_row)(h, layer->first_h, N ? B * U : 0);
  if (N) memcpy(h + B * U, layer->outputs, (N - B) * U * sizeof(ELEMENT));
  int failure = NAME(product_with_transposed)(d_gates, N, G, layer->kernel, D, layer->d_x);
  return failure ? failure : NAME(product_of_transposed)(layer->x, D, h, U, d_gates, N, G, layer->d_kernel);
}
