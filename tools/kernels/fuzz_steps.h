/* Checks of the operators inside of a loop over steps (attention.h): included by fuzz.c. */
static int64_t sizes[26];

/* New sizes of the letters' dimensions. */
static void any_sizes(const char *name, const char *letters) {
  printf("%s", name);
  for (; *letters; letters++) SIZE(*letters) = any_size(*letters == 'B' ? 20 : 70), printf(" %c=%ld", *letters, SIZE(*letters));
  printf("\n"), fflush(stdout);
}

/* Runs it on all arrays of the case: its inputs, then its outputs. */
static void run_step(const Functions *functions, int step) {
  void *data[16];
  for (int n = 0; n < array_count; n++) data[n] = arrays[n].data;
  if (functions->steps[step](sizes, data)) fail("step %d: no memory, or sizes do not fit", step);
}

/* A product with a packed matrix [K, N], and one with its transpose; one row or all is added. */
static void check_step_product(const Functions *functions) {
  any_sizes("step product", "BKN");
  int64_t rows = SIZE('K'), columns = SIZE('N'), B = SIZE('B');
  Array *matrix = given("matrix", rows * columns, ELEMENT, 1);
  void *panels[2];
  int64_t bytes[] = {functions->packed_bytes(rows, columns), functions->packed_bytes(columns, rows)};
  for (int n = 0; n < 2; n++) panels[n] = memset(malloc(bytes[n]), 0xFF, bytes[n]);
  functions->pack(matrix->data, rows, columns, panels[0], panels[1]);
  Array *addend = given("addend", B * columns, FLOAT, 1);
  for (int is_transposed = 0; is_transposed < 2; is_transposed++) {
    int64_t K = is_transposed ? columns : rows, N = is_transposed ? rows : columns;
    int adds = !is_transposed;
    SIZE('K') = K, SIZE('N') = N, SIZE('P') = bytes[is_transposed], SIZE('A') = adds ? B : 0;
    Array *x = given("x", B * K, FLOAT, 1), *result = made("result", B * N, FLOAT);
    void *data[] = {x->data, panels[is_transposed], addend->data, result->data};
    if (functions->steps[0](sizes, data)) fail("no memory, or sizes do not fit");
    for (int64_t b = 0; b < B; b++)
      for (int64_t n = 0; n < N; n++) {
        double sum = adds ? addend->value[b * N + n] : 0;
        for (int64_t k = 0; k < K; k++)
          sum += rounded(x->value[b * K + k]) * matrix->value[is_transposed ? n * K + k : k * N + n];
        result->value[b * N + n] = sum;
      }
  }
  check_arrays();
  free(panels[0]), free(panels[1]);
}

static void check_step_gates(const Functions *functions) {
  any_sizes("step gates", "BU");
  int64_t B = SIZE('B'), U = SIZE('U'), G = SIZE('G') = 4 * U;
  Array *sums = given("sums", B * G, FLOAT, 4), *c = given("c", B * U, FLOAT, 2), *gates = made("gates", B * G, FLOAT);
  Array *cs = made("cs", B * U, FLOAT), *h = made("h", B * U, FLOAT);
  run_step(functions, 1);
  for (int64_t row = 0; row < B * U; row++) {
    int64_t at = row / (U ? U : 1) * G + row % (U ? U : 1);
    for (int n = 0; n < 4; n++) gates->value[at + n * U] = n == 1 ? tanh(sums->value[at + n * U]) : sigmoid(sums->value[at + n * U]);
    const double *gate = gates->value + at;
    cs->value[row] = gate[2 * U] * c->value[row] + gate[0] * gate[U];
    h->value[row] = gate[3 * U] * tanh(cs->value[row]);
  }
  check_arrays();
  gates = given("gates", B * G, FLOAT, 1), c = given("c", B * U, FLOAT, 2), cs = given("cs", B * U, FLOAT, 2);
  Array *d_cs = given("d_cs", B * U, FLOAT, 1), *d_h = given("d_h", B * U, FLOAT, 1);
  Array *d_sums = made("d_sums", B * G, FLOAT), *d_c = made("d_c", B * U, FLOAT);
  run_step(functions, 2);
  for (int64_t row = 0; row < B * U; row++) {
    int64_t at = row / U * G + row % U;
    double i = gates->value[at], ci = gates->value[at + U], f = gates->value[at + 2 * U], o = gates->value[at + 3 * U];
    double co = tanh(cs->value[row]), d_cell = d_cs->value[row] + d_h->value[row] * o * (1 - co * co), *d = d_sums->value + at;
    d[0] = d_cell * ci * i * (1 - i), d[U] = d_cell * i * (1 - ci * ci);
    d[2 * U] = d_cell * c->value[row] * f * (1 - f), d[3 * U] = d_h->value[row] * co * o * (1 - o);
    d_c->value[row] = d_cell * f;
  }
  check_arrays();
}

/* Scores of additive attention, or of products where there is no v; a part of the sentence is masked. */
static void check_attend(const Functions *functions) {
  any_sizes("attend", "BSUD");
  int64_t B = SIZE('B'), S = SIZE('S'), U = SIZE('U'), D = SIZE('D'), V = SIZE('V') = below(2) ? U : 0;
  Array *query = given("query", B * U, FLOAT, 1), *keys = given("keys", B * S * U, ELEMENT, 1);
  Array *memory = given("memory", B * S * D, ELEMENT, 1), *mask = given("mask", B * S, FLOAT, 1);
  for (int64_t n = 0; n < B * S; n++) set(mask, n, n % S && !below(3) ? -1e9 : 0);
  Array *v = given("v", V, ELEMENT, 1), *context = zeros(made("context", B * D, FLOAT)), *shares = made("shares", B * S, FLOAT);
  run_step(functions, 3);
  for (int64_t b = 0; b < B; b++) {
    double *share = shares->value + b * S, largest = -INFINITY, total = 0;
    for (int64_t s = 0; s < S; s++) {
      share[s] = mask->value[b * S + s];
      for (int64_t u = 0; u < U; u++) {
        double q = rounded(query->value[b * U + u]), key = keys->value[(b * S + s) * U + u];
        share[s] += V ? v->value[u] * tanh(q + key) : q * key;
      }
      largest = fmax(largest, share[s]);
    }
    for (int64_t s = 0; s < S; s++) total += share[s] = exp(share[s] - largest);
    for (int64_t s = 0; s < S; s++) {
      share[s] /= total;
      for (int64_t d = 0; d < D; d++) context->value[b * D + d] += rounded(share[s]) * memory->value[(b * S + s) * D + d];
    }
  }
  check_arrays();
  query = given("query", B * U, FLOAT, 1), keys = given("keys", B * S * U, ELEMENT, 1);
  memory = given("memory", B * S * D, ELEMENT, 1), v = given("v", V, ELEMENT, 1), shares = given("shares", B * S, FLOAT, 1);
  Array *d_context = given("d_context", B * D, FLOAT, 1), *d_scores = zeros(made("d_scores", B * S, FLOAT));
  Array *d_query = zeros(made("d_query", B * U, FLOAT));
  run_step(functions, 4);
  for (int64_t b = 0; b < B; b++) {
    double *d_score = d_scores->value + b * S, mean = 0;
    for (int64_t s = 0; s < S; s++) {
      for (int64_t d = 0; d < D; d++) d_score[s] += rounded(d_context->value[b * D + d]) * memory->value[(b * S + s) * D + d];
      mean += shares->value[b * S + s] * d_score[s];
    }
    for (int64_t s = 0; s < S; s++) {
      d_score[s] = shares->value[b * S + s] * (d_score[s] - mean);
      for (int64_t u = 0; u < U; u++) {
        double key = keys->value[(b * S + s) * U + u], y = tanh(rounded(query->value[b * U + u]) + key);
        d_query->value[b * U + u] += rounded(d_score[s]) * (V ? v->value[u] * (1 - y * y) : key);
      }
    }
  }
  check_arrays();
}

static void check_additive_grad(const Functions *functions) {
  any_sizes("additive_grad", "TBSU");
  int64_t T = SIZE('T') = any_size(8), B = SIZE('B'), S = SIZE('S'), U = SIZE('U');
  Array *queries = given("queries", T * B * U, FLOAT, 1), *keys = given("keys", B * S * U, ELEMENT, 1);
  Array *v = given("v", U, ELEMENT, 1), *d_scores = given("d_scores", T * B * S, FLOAT, 1);
  Array *d_keys = zeros(made("d_keys", B * S * U, ELEMENT)), *d_v = zeros(made("d_v", U, FLOAT));
  run_step(functions, 5);
  for (int64_t row = 0; row < B * S; row++)
    for (int64_t t = 0; t < T; t++)
      for (int64_t u = 0; u < U; u++) {
        double y = tanh(rounded(queries->value[(t * B + row / S) * U + u]) + keys->value[row * U + u]);
        double d = rounded(d_scores->value[t * B * S + row]);
        d_keys->value[row * U + u] += d * v->value[u] * (1 - y * y), d_v->value[u] += d * y;
      }
  check_arrays();
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
  if (functions->steps[6 + is_tied](sizes, data)) fail("no memory, or sizes do not fit");
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
