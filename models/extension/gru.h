/* All steps of one GRU layer (layers.h), whose input's products are made before and whose weights' gradients after it. */

static int NAME(gru)(const GruLayer *layer) {
  int64_t T = layer->T, B = layer->B, U = layer->U, depth = round_up(U, PER_LANE), stride = STRIDE(U), width = STRIDE(3 * U);
  PACKED *panels = array_for(LAYER_PANELS, NAME(packed_bytes)(U, 3 * U));
  PACKED *h = array_for(STEP, B * stride * sizeof(PACKED));
  float *sums = array_for(STEP_SUMS, B * width * sizeof(float));
  if (!panels || !h || !sums) return NO_MEMORY;
  NAME(pack)(layer->recurrent, 3 * U, U, 3 * U, panels);
  memset(h, 0, B * stride * sizeof(PACKED));
  memcpy(layer->last_h, layer->first_h, B * U * sizeof(float));
  for (int64_t b = 0; b < B; b++) NAME(pack_floats)(h + b * stride, layer->first_h + b * U, U);
  for (int64_t t = 0; t < T; t++) {
    const float *h_before = t ? layer->hs + (t - 1) * B * U : layer->first_h, *bias = layer->bias;
    NAME(product)(h, stride, B, panels, depth, 3 * U, sums, width, 0);
    for (int64_t b = 0; b < B; b++)
      for (int64_t u = 0; u < U; u += LANES) {
        int lanes = lanes_of(U - u);
        int64_t row = t * B + b;
        const ELEMENT *from_input = (const ELEMENT *)layer->from_input + row * 3 * U + u;
        const float *sum = sums + b * width + u;
        float *gate = layer->gates + row * 4 * U + u;
        Vector r = sigmoid(LOAD(from_input, lanes) + load_f32(bias + u, lanes) + load_f32(sum, lanes));
        Vector z = sigmoid(LOAD(from_input + U, lanes) + load_f32(bias + U + u, lanes) + load_f32(sum + U, lanes));
        Vector state_n = load_f32(sum + 2 * U, lanes) + load_f32(bias + 3 * U + u, lanes);
        Vector n = tangent(LOAD(from_input + 2 * U, lanes) + load_f32(bias + 2 * U + u, lanes) + r * state_n);
        Vector next = n + z * (load_f32(h_before + b * U + u, lanes) - n);
        store_f32(gate, r, lanes);
        store_f32(gate + U, z, lanes);
        store_f32(gate + 2 * U, n, lanes);
        store_f32(gate + 3 * U, state_n, lanes);
        store_f32(layer->hs + row * U + u, next, lanes);
        STORE_PACKED(h + b * stride + u, ROUND(next), lanes);
        STORE((ELEMENT *)layer->outputs + row * U + u, t < layer->lengths[b] ? next : all(0), lanes);
        if (t + 1 == layer->lengths[b]) store_f32(layer->last_h + b * U + u, next, lanes);
      }
  }
  return DONE;
}

static int NAME(gru_grad)(const GruLayer *layer) {
  int64_t T = layer->T, B = layer->B, U = layer->U, stride = STRIDE(3 * U), width = STRIDE(U);
  PACKED *panels = array_for(LAYER_PANELS, NAME(packed_bytes)(3 * U, U));
  PACKED *d_step = array_for(STEP, B * stride * sizeof(PACKED));
  float *sums = array_for(STEP_SUMS, B * width * sizeof(float)); /* of h by the step after, but for what u lets through */
  if (!panels || !d_step || !sums) return NO_MEMORY;
  NAME(pack_transposed)(layer->recurrent, 3 * U, 3 * U, U, panels);
  memset(d_step, 0, B * stride * sizeof(PACKED));
  memset(sums, 0, B * width * sizeof(float));
  memset(layer->d_h, 0, B * U * sizeof(float));
  for (int64_t t = T - 1; t >= 0; t--) {
    const float *h_before = t ? layer->hs + (t - 1) * B * U : layer->first_h;
    for (int64_t b = 0; b < B; b++)
      for (int64_t u = 0; u < U; u += LANES) {
        int lanes = lanes_of(U - u);
        int64_t row = t * B + b, at = b * U + u;
        const float *gate = layer->gates + row * 4 * U + u;
        Vector d = load_f32(layer->d_h + at, lanes) + load_f32(sums + b * width + u, lanes);
        if (t < layer->lengths[b]) d += LOAD((const ELEMENT *)layer->d_outputs + row * U + u, lanes);
        if (t + 1 == layer->lengths[b]) d += load_f32(layer->d_last_h + at, lanes);
        Vector r = load_f32(gate, lanes), z = load_f32(gate + U, lanes), n = load_f32(gate + 2 * U, lanes);
        Vector d_n = d * (1.0f - z) * (1.0f - n * n), d_z = d * (load_f32(h_before + at, lanes) - n) * (z - z * z);
        Vector d_r = d_n * load_f32(gate + 3 * U, lanes) * (r - r * r);
        Vector d_gates[4] = {d_r, d_z, d_n, d_n * r};
        store_f32(layer->d_h + at, d * z, lanes);
        for (int gate = 0; gate < 3; gate++) {
          Vector of_state = d_gates[gate < 2 ? gate : 3];
          STORE((ELEMENT *)layer->d_input + row * 3 * U + gate * U + u, d_gates[gate], lanes);
          STORE((ELEMENT *)layer->d_state + row * 3 * U + gate * U + u, of_state, lanes);
          STORE_PACKED(d_step + b * stride + gate * U + u, ROUND(of_state), lanes);
        }
      }
    NAME(product)(d_step, stride, B, panels, round_up(3 * U, PER_LANE), U, sums, width, 0);
  }
  for (int64_t b = 0; b < B; b++)
    for (int64_t u = 0; u < U; u++) layer->d_h[b * U + u] += sums[b * width + u];
  return DONE;
}
