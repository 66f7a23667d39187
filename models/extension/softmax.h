/* One row of V logits -> its cross entropy with the target (1 - smoothing) onehot(label) + smoothing / V, and p - target,
 * which may take the logits' place. `row` has space for V numbers. */
static float NAME(softmax)(const ELEMENT *logits, int64_t V, int64_t label, float smoothing, float *row,
                           ELEMENT *d_logits) {
  __m512 largest = _mm512_set1_ps(-__builtin_inff()), total = _mm512_setzero_ps(), shifted_total = total;
  for (int64_t v = 0; v < V; v += LANES)
    largest = _mm512_mask_max_ps(largest, lanes_of(V - v), largest, LOAD(logits + v, lanes_of(V - v)));
  __m512 maximum = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
  __m512 at_label = _mm512_sub_ps(LOAD(logits + label, 1), maximum);
  for (int64_t v = 0; v < V; v += LANES) {
    __mmask16 lanes = lanes_of(V - v);
    __m512 shifted = _mm512_sub_ps(LOAD(logits + v, lanes), maximum), e = exponential(shifted);
    store_f32(row + v, e, lanes);
    shifted_total = _mm512_mask_add_ps(shifted_total, lanes, shifted_total, shifted);
    total = _mm512_mask_add_ps(total, lanes, total, e);
  }
  float sum = _mm512_reduce_add_ps(total);
  row[label] -= (1.0f - smoothing) * sum;
  __m512 scale = _mm512_set1_ps(1.0f / sum), spread = _mm512_set1_ps(smoothing / V);
  for (int64_t v = 0; v < V; v += LANES)
    STORE(d_logits + v, _mm512_fmsub_ps(load_f32(row + v, lanes_of(V - v)), scale, spread), lanes_of(V - v));
  float smooth = smoothing ? smoothing * (_mm512_reduce_add_ps(shifted_total) / V) : 0.0f; /* and not 0 * infinity */
  return logf(sum) - (1.0f - smoothing) * _mm512_cvtss_f32(at_label) - smooth;
}
