/* Checks of the decoder with attention (decoder.h) and of the loss (loss.h): included by fuzz.c. */
static int64_t sizes[26];

/* New sizes of the letters' dimensions. */
static void any_sizes(const char *name, const char *letters) {
  printf("%s", name);
  for (; *letters; letters++) SIZE(*letters) = any_size(*letters == 'B' ? 20 : 70), printf(" %c=%ld", *letters, SIZE(*letters));
  printf("\n"), fflush(stdout);
}

/* Runs it on all arrays of the case: its inputs, then its outputs. */
static void run_step(const Functions *functions, int step) {
  void *data[64];
  for (int n = 0; n < array_count; n++) data[n] = arrays[n].data;
  if (functions->steps[step](sizes, data)) fail("step %d: no memory, or sizes do not fit", step);
}

/* Scores of additive attention, or of products where there is no v, of one sentence. */
static void plain_attend(const double *query, const double *keys, const double *memory, const double *mask, const double *v,
                         double *context, double *shares) {
  double largest = -INFINITY, total = 0;
  for (int64_t s = 0; s < SIZE('S'); s++) {
    shares[s] = mask[s];
    for (int64_t u = 0; u < SIZE('U'); u++) {
      double q = rounded(query[u]), key = keys[s * SIZE('U') + u];
      shares[s] += SIZE('V') ? v[u] * tanh(q + key) : q * key;
    }
    largest = fmax(largest, shares[s]);
  }
  for (int64_t s = 0; s < SIZE('S'); s++) total += shares[s] = exp(shares[s] - largest);
  for (int64_t d = 0; d < SIZE('D'); d++) context[d] = 0;
  for (int64_t s = 0; s < SIZE('S'); s++) {
    shares[s] /= total;
    for (int64_t d = 0; d < SIZE('D'); d++) context[d] += rounded(shares[s]) * memory[s * SIZE('D') + d];
  }
}

static void plain_attend_grad(const double *query, const double *keys, const double *memory, const double *v,
                              const double *shares, const double *d_context, double *d_scores, double *d_query,
                              double *d_keys, double *d_v) {
  double mean = 0;
  for (int64_t s = 0; s < SIZE('S'); s++) {
    d_scores[s] = 0;
    for (int64_t d = 0; d < SIZE('D'); d++) d_scores[s] += rounded(d_context[d]) * memory[s * SIZE('D') + d];
    mean += shares[s] * d_scores[s];
  }
  for (int64_t s = 0; s < SIZE('S'); s++) {
    d_scores[s] = shares[s] * (d_scores[s] - mean);
    for (int64_t u = 0; u < SIZE('U'); u++) {
      double key = keys[s * SIZE('U') + u], y = tanh(rounded(query[u]) + key), d = rounded(d_scores[s]);
      d_query[u] += SIZE('V') ? d * v[u] * (1 - y * y) : d * key;
      if (SIZE('V')) d_keys[s * SIZE('U') + u] += d * v[u] * (1 - y * y), d_v[u] += d * y;
    }
  }
}

/* A decoder with attention of all steps, forward and backward, with some words masked. */
static void check_decode(const Functions *functions) {
  SIZE('L') = 1 + below(3), SIZE('T') = any_size(6);
  printf("L=%ld T=%ld ", SIZE('L'), SIZE('T'));
  any_sizes("decode", "BSUD");
  if (!SIZE('U')) SIZE('U') = 1;
  int64_t L = SIZE('L'), T = SIZE('T'), B = SIZE('B'), S = SIZE('S'), U = SIZE('U'), D = SIZE('D'), G = SIZE('G') = 4 * U;
  int64_t is_luong = below(2), V = SIZE('V') = is_luong ? 0 : U, F = is_luong ? U : D, W = SIZE('W') = is_luong ? D + U : U;
  int64_t R = SIZE('R') = F + U * (2 * L - 1), M = SIZE('M') = below(2) * T * B * (F + U * (L - 1)), N = T * B;
  Array *from_words = given("from_words", N * G, ELEMENT, 1), *biases = given("biases", L * G, FLOAT, 1);
  Array *kernels = given("kernels", R * G, ELEMENT, 1.5 / sqrt(F + U)), *first_c = given("first_c", L * B * U, FLOAT, 2);
  Array *first_h = given("first_h", L * B * U, FLOAT, 1), *keys = given("keys", B * S * U, ELEMENT, 1 / sqrt(U));
  Array *memory = given("memory", B * S * D, ELEMENT, 1), *mask = given("mask", B * S, FLOAT, 1);
  for (int64_t n = 0; n < B * S; n++) set(mask, n, n % S && !below(3) ? -1e9 : 0);
  Array *v = given("v", V, ELEMENT, 1), *matrix = given("matrix", W * U, ELEMENT, 1.5 / sqrt(W));
  Array *dropped = given("dropped", M, FLOAT, 2), *gates = made("gates", L * N * G, FLOAT), *cs = made("cs", L * N * U, FLOAT);
  Array *hs = made("hs", L * N * U, FLOAT), *shares = made("shares", N * S, FLOAT), *contexts = made("contexts", N * D, FLOAT);
  Array *steps = made("made", N * U, FLOAT);
  run_step(functions, 0);
  Array *d_contexts = given("d_contexts", N * D, FLOAT, 1), *d_tops = given("d_tops", N * U, FLOAT, 1);
  Array *d_made = given("d_made", N * U, FLOAT, 1), *d_gates = made("d_gates", L * N * G, ELEMENT);
  Array *d_biases = zeros(made("d_biases", L * G, FLOAT)), *d_scores = made("d_scores", N * S, FLOAT);
  Array *d_products = made("d_products", N * U, FLOAT), *d_all_contexts = made("d_all_contexts", N * D, FLOAT);
  Array *d_c = zeros(made("d_first_c", L * B * U, FLOAT)), *d_h = zeros(made("d_first_h", L * B * U, FLOAT));
  Array *d_keys = zeros(made("d_keys", B * S * V, FLOAT)), *d_v = zeros(made("d_v", V, FLOAT));
  Array *of_grad[] = {kernels, first_c, keys, memory, v, matrix, dropped, gates, cs, hs, shares, steps, d_contexts, d_tops,
                      d_made, d_gates, d_biases, d_scores, d_products, d_all_contexts, d_c, d_h, d_keys, d_v};
  void *data[24];
  for (int n = 0; n < 24; n++) data[n] = of_grad[n]->data;
  if (functions->steps[1](sizes, data)) fail("no memory, or sizes do not fit");
  double *read = malloc((F + 2 * U) * sizeof *read), *d_read = malloc((F + 1) * sizeof *d_read);
#define LAYER(l) int64_t X = (l) ? U : F, K = X + U, mask_at = (l) ? N * (F + ((l) - 1) * U) : 0
#define KERNEL(l, k, g) kernels->value[(((l) ? F + U + 2 * U * ((l) - 1) : 0) + (k)) * G + (g)]
#define BEFORE(first, all, l) (t ? all->value + (((l) * T + t - 1) * B + b) * U : first->value + ((l) * B + b) * U)
#define KEPT(k) (M ? dropped->value[mask_at + row * X + (k)] : 1)
  for (int64_t b = 0; b < B; b++) {
    const double *key = keys->value + b * S * U, *word = memory->value + b * S * D;
    for (int64_t t = 0, row = b; t < T; t++, row += B) {
      double *step = steps->value + row * U, *context = contexts->value + row * D, *share = shares->value + row * S;
      const double *top = BEFORE(first_h, hs, L - 1), *x = is_luong ? t ? step - B * U : NULL : context;
      if (!is_luong) {
        for (int64_t u = 0; u < U; u++) step[u] = 0;
        for (int64_t k = 0; k < U; k++)
          for (int64_t u = 0; u < U; u++) step[u] += rounded(top[k]) * matrix->value[k * U + u];
        plain_attend(step, key, word, mask->value + b * S, v->value, context, share);
      }
      for (int64_t l = 0; l < L; l++) {
        LAYER(l);
        const double *h_before = BEFORE(first_h, hs, l), *c_before = BEFORE(first_c, cs, l);
        double *gate = gates->value + (l * N + row) * G, *c = cs->value + (l * N + row) * U, *h = hs->value + (l * N + row) * U;
        for (int64_t k = 0; k < K; k++) read[k] = rounded(k >= X ? h_before[k - X] : x ? x[k] * KEPT(k) : 0);
        for (int64_t g = 0; g < G; g++) {
          double sum = biases->value[l * G + g] + (l ? 0 : from_words->value[row * G + g]);
          for (int64_t k = 0; k < K; k++) sum += read[k] * KERNEL(l, k, g);
          gate[g] = g / U == 1 ? tanh(sum) : sigmoid(sum);
        }
        for (int64_t u = 0; u < U; u++) {
          c[u] = gate[2 * U + u] * c_before[u] + gate[u] * gate[U + u];
          h[u] = gate[3 * U + u] * tanh(c[u]);
        }
        x = h;
      }
      if (!is_luong) continue;
      plain_attend(x, key, word, mask->value + b * S, v->value, context, share);
      for (int64_t u = 0; u < U; u++) {
        double sum = 0;
        for (int64_t k = 0; k < W; k++) sum += rounded(k < D ? context[k] : x[k - D]) * matrix->value[k * U + u];
        step[u] = tanh(sum);
      }
    }
    double *d_top = d_h->value + ((L - 1) * B + b) * U;
    for (int64_t k = 0; k < F; k++) d_read[k] = 0;
    for (int64_t t = T - 1, row = (T - 1) * B + b; t >= 0; t--, row -= B) {
      const double *step = steps->value + row * U, *top = hs->value + ((L - 1) * N + row) * U, *share = shares->value + row * S;
      double *d_step = d_products->value + row * U, *d_context = d_all_contexts->value + row * D, *d_score = d_scores->value + row * S;
      memcpy(d_context, d_contexts->value + row * D, D * sizeof *d_context);
      for (int64_t u = 0; u < U; u++) d_step[u] = d_made->value[row * U + u], d_top[u] += d_tops->value[row * U + u];
      if (is_luong) {
        for (int64_t u = 0; u < U; u++) d_step[u] = (d_step[u] + d_read[u]) * (1 - step[u] * step[u]);
        for (int64_t k = 0; k < W; k++)
          for (int64_t u = 0; u < U; u++)
            *(k < D ? &d_context[k] : &d_top[k - D]) += rounded(d_step[u]) * matrix->value[k * U + u];
        plain_attend_grad(top, key, word, v->value, share, d_context, d_score, d_top, NULL, NULL);
      }
      for (int64_t l = L - 1; l >= 0; l--) {
        LAYER(l);
        const double *gate = gates->value + (l * N + row) * G, *c = cs->value + (l * N + row) * U;
        const double *c_before = BEFORE(first_c, cs, l);
        double *d = d_gates->value + (l * N + row) * G, *of_c = d_c->value + (l * B + b) * U, *of_h = d_h->value + (l * B + b) * U;
        for (int64_t u = 0; u < U; u++) {
          double i = gate[u], ci = gate[U + u], f = gate[2 * U + u], o = gate[3 * U + u], co = tanh(c[u]);
          double d_cell = of_c[u] + of_h[u] * o * (1 - co * co);
          d[u] = d_cell * ci * i * (1 - i), d[U + u] = d_cell * i * (1 - ci * ci);
          d[2 * U + u] = d_cell * c_before[u] * f * (1 - f), d[3 * U + u] = of_h[u] * co * o * (1 - o);
          of_c[u] = d_cell * f, of_h[u] = 0;
        }
        for (int64_t k = 0; k < F && !l; k++) d_read[k] = 0;
        for (int64_t g = 0; g < G; g++) {
          d_biases->value[l * G + g] += d[g];
          for (int64_t k = 0; k < K; k++) {
            double *to = k >= X ? &of_h[k - X] : l ? &d_h->value[((l - 1) * B + b) * U + k] : &d_read[k];
            *to += KERNEL(l, k, g) * rounded(d[g]) * (k < X ? KEPT(k) : 1);
          }
        }
      }
      if (is_luong) continue;
      for (int64_t k = 0; k < D; k++) d_context[k] += d_read[k];
      plain_attend_grad(step, key, word, v->value, share, d_context, d_score, d_step, d_keys->value + b * S * U, d_v->value);
      for (int64_t k = 0; k < U; k++)
        for (int64_t u = 0; u < U; u++) d_top[k] += rounded(d_step[u]) * matrix->value[k * U + u];
    }
  }
  check_arrays();
  free(read), free(d_read);
}

/* Projection and cross entropy; now and then of more than one block of rows or units, or with a word that cannot be. */
static void check_loss(const Functions *functions) {
  static const int64_t first[][3] = {{100, 0, 5}, {3, 1029, 70}, {3, 1029, 70}, {97, 9, 1000}};
  int64_t N = any_size(below(8) ? 20 : 120), U = any_size(70), V = 1 + any_size(below(8) ? 70 : 1100), is_tied = below(2);
  double smoothing = below(2) ? 0 : uniform(0, 0.5), scale = below(4) ? 1 : 100;
  if (seed < 4) N = first[seed][0], U = first[seed][1], V = first[seed][2], is_tied = seed % 2, scale = 1;
  int64_t has_bias = below(2), *labels = malloc(N * sizeof *labels + 1), B = has_bias * V;
  SIZE('N') = N, SIZE('U') = U, SIZE('V') = V, SIZE('B') = B;
  printf("loss N=%ld U=%ld V=%ld bias: %ld tied: %ld smoothing=%g\n", N, U, V, has_bias, is_tied, smoothing), fflush(stdout);
  Array *hidden = given("hidden", N * U, ELEMENT, 1), *projection = given("projection", U * V, ELEMENT, scale);
  Array *bias = given("bias", B, FLOAT, 3), *share = given("smoothing", 1, FLOAT, 0), *losses = made("losses", N, FLOAT);
  Array *is_right = made("is_right", N, FLOAT), *d_logits = made("d_logits", N * V, ELEMENT);
  set(share, 0, smoothing);
  if (has_bias && V > 1 && !below(4)) set(bias, below(V), -INFINITY);
  for (int64_t n = 0; n < N; n++) labels[n] = below(V);
  void *data[] = {hidden->data, projection->data, bias->data,     labels,
                  share->data,  losses->data,     is_right->data, d_logits->data};
  if (functions->steps[2 + is_tied](sizes, data)) fail("no memory, or sizes do not fit");
  double *logits = malloc(V * sizeof *logits);
  for (int64_t n = 0; n < N; n++) {
    double largest = -INFINITY, other = -INFINITY, total = 0, sum = 0;
    for (int64_t v = 0; v < V; v++) {
      double logit = has_bias ? bias->value[v] : 0;
      for (int64_t u = 0; u < U; u++) logit += hidden->value[n * U + u] * projection->value[is_tied ? v * U + u : u * V + v];
      logits[v] = logit, largest = fmax(largest, logit), total += logit;
      if (v != labels[n]) other = fmax(other, logit);
    }
    double gap = logits[labels[n]] - other, *d = d_logits->value + n * V;
    if (fabs(gap) > 1e-3) is_right->value[n] = gap > 0;
    for (int64_t v = 0; v < V; v++) sum += exp(logits[v] - largest);
    losses->value[n] = largest + log(sum) - (1 - smoothing) * logits[labels[n]] - (smoothing ? smoothing * total / V : 0);
    for (int64_t v = 0; v < V; v++)
      d[v] = exp(logits[v] - largest) / sum - (v == labels[n] ? 1 - smoothing : 0) - smoothing / V;
  }
  check_arrays();
  free(labels), free(logits);
}
