/* Projection to V words and cross entropy; the logits of HEIGHT rows at a time stay in the caches. */

/* The largest of `count` numbers. */
static float NAME(largest)(const float *row, int64_t count) {
  Vector most = all(-__builtin_inff());
  for (int64_t v = 0; v < count; v += LANES) {
    int lanes = lanes_of(count - v);
    Vector x = load_f32(row + v, lanes);
    most = larger(lanes < LANES ? filled(x, lanes, -__builtin_inff()) : x, most);
  }
  float largest = most[0];
  for (int n = 1; n < LANES; n++) largest = most[n] > largest ? most[n] : largest;
  return largest;
}

/* One row of V logits -> its cross entropy with the target (1 - smoothing) onehot(label) + smoothing / V, whether the label
 * is the first of the largest, and p - target. The row's numbers are lost. */
static float NAME(softmax)(float *row, int64_t V, int64_t label, float smoothing, float *is_right, ELEMENT *d_logits) {
  float maximum = NAME(largest)(row, V), at_label = row[label] - maximum, mean = 0;
  *is_right = row[label] == maximum && NAME(largest)(row, label) != maximum;
  if (smoothing) {
    Vector total = all(0);
    for (int64_t v = 0; v < V; v += LANES) total += load_f32(row + v, lanes_of(V - v));
    mean = sum_of_lanes(total) / V - maximum;
  }
  Vector total = all(0);
  for (int64_t v = 0; v < V; v += LANES) {
    int lanes = lanes_of(V - v);
    Vector e = exponential(load_f32(row + v, lanes) - maximum);
    store_f32(row + v, e, lanes);
    total += lanes < LANES ? filled(e, lanes, 0) : e;
  }
  float sum = sum_of_lanes(total);
  row[label] -= (1.0f - smoothing) * sum;
  for (int64_t v = 0; v < V; v += LANES) {
    int lanes = lanes_of(V - v);
    STORE(d_logits + v, load_f32(row + v, lanes) * (1.0f / sum) - smoothing / V, lanes);
  }
  return logf(sum) - (1.0f - smoothing) * at_label - (smoothing ? smoothing * mean : 0.0f); /* and not 0 * infinity */
}

/* hidden [N, U], projection [U, V] or, tied to the embeddings, [V, U], bias [V] or [0], labels [N], smoothing -> losses [N],
 * is_right [N], p - target [N, V]. */
static int NAME(loss)(int is_tied, const int64_t *sizes, void **data) {
  int64_t N = SIZE('N'), U = SIZE('U'), V = SIZE('V'), width = STRIDE(V);
  const float *bias = data[2], smoothing = *(const float *)data[4];
  const int64_t *labels = data[3];
  if (SIZE('B') && SIZE('B') != V) return WRONG_SIZES;
  for (int64_t n = 0; n < N; n++)
    if (labels[n] < 0 || labels[n] >= V) return WRONG_LABEL;
  PACKED *panels = array_for(PANELS, NAME(packed_bytes)(U, V));
  PACKED *space = array_for(SPACE, NAME(space)(HEIGHT, U) * sizeof(PACKED));
  float *logits = array_for(SUMS, HEIGHT * width * sizeof(float));
  if (!panels || !space || !logits) return NO_MEMORY;
  NAME(pack_columns)(data[1], is_tied, U, V, 0, V, panels);
  for (int64_t n = 0; n < N; n += HEIGHT) {
    int64_t rows = N - n < HEIGHT ? N - n : HEIGHT;
    NAME(multiply)((const ELEMENT *)data[0] + n * U, 0, U, rows, panels, U, V, space, logits, width);
    for (int64_t row = n; row < n + rows; row++) {
      float *logit = logits + (row - n) * width;
      for (int64_t v = 0; v < SIZE('B'); v++) logit[v] += bias[v];
      ((float *)data[5])[row] =
          NAME(softmax)(logit, V, labels[row], smoothing, (float *)data[6] + row, (ELEMENT *)data[7] + row * V);
    }
  }
  return DONE;
}

static int NAME(untied_loss)(const int64_t *sizes, void **data) { return NAME(loss)(0, sizes, data); }
static int NAME(tied_loss)(const int64_t *sizes, void **data) { return NAME(loss)(1, sizes, data); }
