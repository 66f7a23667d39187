static float NAME(softmax)(const void *row_of_logits, int64_t V, int64_t label, float smoothing, float *row,
                           void *row_of_gradients) {
  const ELEMENT *logits = row_of_logits;
  ELEMENT *d_logits = row_of_gradients;
  Vector largest = all(-__builtin_inff()), total = all(0), shifted_total = all(0);
  for (int64_t v = 0; v < V; v += LANES) {
    int lanes = lanes_of(V - v);
    largest = larger(filled(LOAD(logits + v, lanes), lanes, -__builtin_inff()), largest);
  }
  float maximum = largest[0];
  for (int n = 1; n < LANES; n++) maximum = largest[n] > maximum ? largest[n] : maximum;
  float at_label = LOAD(logits + label, 1)[0] - maximum;
  for (int64_t v = 0; v < V; v += LANES) {
    int lanes = lanes_of(V - v);
    Vector shifted = LOAD(logits + v, lanes) - maximum, e = exponential(shifted);
    store_f32(row + v, e, lanes);
    shifted_total += filled(shifted, lanes, 0);
    total += filled(e, lanes, 0);
  }
  float sum = sum_of_lanes(total);
  row[label] -= (1.0f - smoothing) * sum;
  for (int64_t v = 0; v < V; v += LANES) {
    int lanes = lanes_of(V - v);
    STORE(d_logits + v, load_f32(row + v, lanes) * (1.0f / sum) - smoothing / V, lanes);
  }
  float smooth = smoothing ? smoothing * (sum_of_lanes(shifted_total) / V) : 0.0f; /* and not 0 * infinity */
  return logf(sum) - (1.0f - smoothing) * at_label - smooth;
}
