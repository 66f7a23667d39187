/* All steps of one LSTM layer. T: steps, B: sentences, D: width of the input, U: units, G = 4U gates, in the order i,
 * ci, f, o. Everything is row-major; K = D + U numbers of input and state meet the kernel in one product a step. */

/* Rows of a product lie this far apart: not a power of two, by which all would share a few sets of the first cache. */
#define STRIDE(n) (round_up(n, 2 * LANES) + 2 * LANES)

/*   x [T, B, D], kernel [K, G], bias [G] with the forget gate's, first_c, first_h [B, U], lengths [B]
 *   gates [T, B, G] after their nonlinearity; cs [T, B, U] cell states; outputs [T, B, U], zero past a sentence's length
 *   last_c, last_h [B, U] at each sentence's length
 * Returns 0, or 1 where memory is short. */
static int NAME(forward)(int64_t T, int64_t B, int64_t D, int64_t U, const ELEMENT *x, const ELEMENT *kernel,
                         const float *bias, const float *first_c, const float *first_h, const int32_t *lengths,
                         float *gates, float *cs, ELEMENT *outputs, float *last_c, float *last_h) {
  int64_t G = 4 * U, K = D + U, depth = round_up(K, PER_LANE), stride = STRIDE(K), width = STRIDE(G);
  ELEMENT *panels = new_array(round_up(G, PANEL) * depth * sizeof(ELEMENT)), *xh = new_array(B * stride * sizeof(ELEMENT));
  float *sums = new_array(B * width * sizeof(float));
  int failed = !panels || !xh || !sums;
  if (!failed) {
    NAME(pack)(kernel, G, K, G, panels);
    memset(xh, 0, B * stride * sizeof(ELEMENT));
    memcpy(last_c, first_c, B * U * sizeof(float));
    memcpy(last_h, first_h, B * U * sizeof(float));
    for (int64_t b = 0; b < B; b++)
      for (int64_t u = 0; u < U; u += LANES)
        STORE(xh + b * stride + D + u, load_f32(first_h + b * U + u, lanes_of(U - u)), lanes_of(U - u));
  }
  for (int64_t t = 0; t < T && !failed; t++) {
    for (int64_t b = 0; b < B; b++) memcpy(xh + b * stride, x + (t * B + b) * D, D * sizeof(ELEMENT));
    NAME(product)(xh, stride, B, panels, depth, G, sums, width, 0);
    const float *c_before = t ? cs + (t - 1) * B * U : first_c;
    for (int64_t b = 0; b < B; b++)
      for (int64_t u = 0; u < U; u += LANES) {
        __mmask16 lanes = lanes_of(U - u);
        const float *sum = sums + b * width + u;
        float *gate = gates + (t * B + b) * G + u;
        __m512 i = sigmoid(_mm512_add_ps(load_f32(sum, lanes), load_f32(bias + u, lanes)));
        __m512 ci = tangent(_mm512_add_ps(load_f32(sum + U, lanes), load_f32(bias + U + u, lanes)));
        __m512 f = sigmoid(_mm512_add_ps(load_f32(sum + 2 * U, lanes), load_f32(bias + 2 * U + u, lanes)));
        __m512 o = sigmoid(_mm512_add_ps(load_f32(sum + 3 * U, lanes), load_f32(bias + 3 * U + u, lanes)));
        __m512 c = _mm512_fmadd_ps(f, load_f32(c_before + b * U + u, lanes), _mm512_mul_ps(i, ci));
        __m512 h = _mm512_mul_ps(o, tangent(c));
        store_f32(gate, i, lanes);
        store_f32(gate + U, ci, lanes);
        store_f32(gate + 2 * U, f, lanes);
        store_f32(gate + 3 * U, o, lanes);
        store_f32(cs + (t * B + b) * U + u, c, lanes);
        STORE(xh + b * stride + D + u, h, lanes);
        STORE(outputs + (t * B + b) * U + u, t < lengths[b] ? h : _mm512_setzero_ps(), lanes);
        if (t + 1 == lengths[b]) {
          store_f32(last_c + b * U + u, c, lanes);
          store_f32(last_h + b * U + u, h, lanes);
        }
      }
  }
  free(panels), free(xh), free(sums);
  return failed;
}

/* Gates before their nonlinearity: one step's gradients -> d_step [B, STRIDE(G)] and d_gates [B, G]; d_c goes on to the
 * step before; d_bias [G] is added to. Arguments as of `backward`, of step t; d_h are rows of `width`. */
static void NAME(gates_back)(int64_t t, int64_t B, int64_t U, const float *gates, const float *c, const float *c_before,
                             const int32_t *lengths, const ELEMENT *d_outputs, const float *d_last_c,
                             const float *d_last_h, const float *d_h, int64_t width, float *d_c, float *d_bias,
                             ELEMENT *d_step, ELEMENT *d_gates) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int64_t b = 0; b < B; b++)
    for (int64_t u = 0; u < U; u += LANES) {
      __mmask16 lanes = lanes_of(U - u);
      int64_t at = b * U + u;
      __m512 d_out = load_f32(d_h + b * width + u, lanes), d_cell = load_f32(d_c + at, lanes);
      if (t < lengths[b]) d_out = _mm512_add_ps(d_out, LOAD(d_outputs + at, lanes));
      if (t + 1 == lengths[b]) {
        d_out = _mm512_add_ps(d_out, load_f32(d_last_h + at, lanes));
        d_cell = load_f32(d_last_c + at, lanes);
      }
      const float *gate = gates + b * 4 * U + u;
      __m512 i = load_f32(gate, lanes), ci = load_f32(gate + U, lanes);
      __m512 f = load_f32(gate + 2 * U, lanes), o = load_f32(gate + 3 * U, lanes), co = tangent(load_f32(c + at, lanes));
      d_cell = _mm512_fmadd_ps(_mm512_mul_ps(d_out, o), _mm512_fnmadd_ps(co, co, one), d_cell);
      __m512 d[4] = {_mm512_mul_ps(_mm512_mul_ps(d_cell, ci), _mm512_fnmadd_ps(i, i, i)),
                     _mm512_mul_ps(_mm512_mul_ps(d_cell, i), _mm512_fnmadd_ps(ci, ci, one)),
                     _mm512_mul_ps(_mm512_mul_ps(d_cell, load_f32(c_before + at, lanes)), _mm512_fnmadd_ps(f, f, f)),
                     _mm512_mul_ps(_mm512_mul_ps(d_out, co), _mm512_fnmadd_ps(o, o, o))};
      store_f32(d_c + at, _mm512_mul_ps(d_cell, f), lanes);
      for (int n = 0; n < 4; n++) {
        float *sum = d_bias + n * U + u;
        store_f32(sum, _mm512_add_ps(load_f32(sum, lanes), d[n]), lanes);
        STORE(d_step + b * STRIDE(4 * U) + n * U + u, d[n], lanes);
        STORE(d_gates + b * 4 * U + n * U + u, d[n], lanes);
      }
    }
}

/* Shapes as of `forward`; d_outputs, d_last_c, d_last_h: gradients of what it made -> d_x, d_kernel, d_bias, d_c, d_h. */
static int NAME(backward)(int64_t T, int64_t B, int64_t D, int64_t U, const ELEMENT *x, const ELEMENT *kernel,
                          const float *first_c, const float *first_h, const int32_t *lengths, const float *gates,
                          const float *cs, const ELEMENT *outputs, const ELEMENT *d_outputs, const float *d_last_c,
                          const float *d_last_h, ELEMENT *d_x, ELEMENT *d_kernel, float *d_bias, float *d_c, float *d_h) {
  int64_t G = 4 * U, K = D + U, N = T * B, width = STRIDE(K), columns = STRIDE(N), most = round_up(K, PANEL) * G;
  ELEMENT *panels = new_array((most > DEPTH * WIDTH ? most : DEPTH * WIDTH) * sizeof(ELEMENT));
  ELEMENT *step = new_array(B * STRIDE(G) * sizeof(ELEMENT)), *d_gates = new_array(N * G * sizeof(ELEMENT));
  ELEMENT *xh = new_array(K * columns * sizeof(ELEMENT)), *h = new_array(B * U * sizeof(ELEMENT));
  float *sums = new_array(B * width * sizeof(float)), *products = new_array(K * G * sizeof(float));
  int failed = !panels || !step || !d_gates || !xh || !h || !sums || !products;
  if (!failed) {
    NAME(pack_transposed)(kernel, G, G, K, panels);
    memset(sums, 0, B * width * sizeof(float));
    memset(d_c, 0, B * U * sizeof(float));
    memset(d_bias, 0, G * sizeof(float));
    for (int64_t t = T - 1; t >= 0; t--) {
      NAME(gates_back)(t, B, U, gates + t * B * G, cs + t * B * U, t ? cs + (t - 1) * B * U : first_c, lengths,
                       d_outputs + t * B * U, d_last_c, d_last_h, sums + D, width, d_c, d_bias, step, d_gates + t * B * G);
      NAME(product)(step, STRIDE(G), B, panels, G, K, sums, width, 0);
      for (int64_t b = 0; b < B; b++)
        for (int64_t d = 0; d < D; d += LANES)
          STORE(d_x + (t * B + b) * D + d, load_f32(sums + b * width + d, lanes_of(D - d)), lanes_of(D - d));
    }
    for (int64_t b = 0; b < B; b++) memcpy(d_h + b * U, sums + b * width + D, U * sizeof(float));
    /* The kernel's gradient in one product: inputs and states before each step, transposed, times the gates' gradients. */
    for (int64_t at = 0; at < B * U; at += LANES)
      STORE(h + at, load_f32(first_h + at, lanes_of(B * U - at)), lanes_of(B * U - at));
    memset(xh, 0, K * columns * sizeof(ELEMENT));
    if (!N) memset(products, 0, K * G * sizeof(float)); /* what follows writes none then */
    NAME(transpose)(x, N, D, xh, columns);
    NAME(transpose)(h, B, U, xh + D * columns, columns);
    NAME(transpose)(outputs, N - B, U, xh + D * columns + B, columns);
    NAME(large_product)(xh, columns, K, N, d_gates, G, panels, products);
    for (int64_t at = 0; at < K * G; at += LANES)
      STORE(d_kernel + at, load_f32(products + at, lanes_of(K * G - at)), lanes_of(K * G - at));
  }
  free(panels), free(step), free(d_gates), free(xh), free(h), free(sums), free(products);
  return failed;
}
