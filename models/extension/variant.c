/* The loops of all operators for one instruction set: VARIANT is avx2, avx512 or avx512_bf16, by the compiler's flags. */
#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers.h"

enum { DEPTH = 1024, ALIGNMENT = 64 };

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static void *new_array(size_t bytes) { return aligned_alloc(ALIGNMENT, round_up(bytes + 1, ALIGNMENT)); }

#include "vectors.h"

enum { WIDTH = 4 * PANEL };
/* Rows of a product lie this far apart: not a power of two, by which all would share a few sets of the first cache. */
#define STRIDE(n) (round_up(n, 2 * LANES) + 2 * LANES)

#define FLOAT32
#include "dtype.h"
#include "product.h"
#include "lstm.h"
#include "gru.h"
#include "softmax.h"
#include "attention.h"
#undef FLOAT32
#include "dtype.h"
#include "product.h"
#include "lstm.h"
#include "gru.h"
#include "softmax.h"
#include "attention.h"

#define STEPS(dtype)                                                                                                    \
  {step_product_##dtype, step_gates_##dtype, step_gates_grad_##dtype, attend_##dtype, attend_grad_##dtype, additive_grad_##dtype}
#define OF(dtype) {lstm_##dtype, lstm_grad_##dtype, gru_##dtype, gru_grad_##dtype, softmax_##dtype, packed_bytes_##dtype, pack_both_##dtype, STEPS(dtype)}
const Functions VARIANT[2] = {OF(f32), OF(bf16)};
