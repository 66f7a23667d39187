/* One row of V logits -> its loss -log p(label), and p - onehot(label), which may take the logits' place. `row` has space
 * for V numbers. */
static float NAME(softmax)(const ELEMENT *logits, int64_t V, int64_t label, float *row, ELEMENT *d_logits) {
  __m512 largest = _mm512_set1_ps(-__builtin_inff()), total = _mm512_setzero_ps();
  for (int64_t v = 0; v < V; v += LANES)
    largest = _mm512_mask_max_ps(largest, lanes_of(V - v), largest, LOAD(logits + v, lanes_of(V - v)));
  __m512 maximum = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
  __m512 at_label = _mm512_sub_ps(LOAD(logits + label, 1), maximum);
  for (int64_t v = 0; v < V; v += LANES) {
    __mmask16 lanes = lanes_of(V - v);
    __m512 e = exponential(_mm512_sub_ps(LOAD(logits + v, lanes), maximum));
    store_f32(row + v, e, lanes);
    total = _mm512_mask_add_ps(total, lanes, total, e);
  }
  float sum = _mm512_reduce_add_ps(total);
  row[label] -= sum;
  __m512 scale = _mm512_set1_ps(1.0f / sum);
  for (int64_t v = 0; v < V; v += LANES)
    STORE(d_logits + v, _mm512_mul_ps(load_f32(row + v, lanes_of(V - v)), scale), lanes_of(V - v));
  return logf(sum) - _mm512_cvtss_f32(at_label);
}
