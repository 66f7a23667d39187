/* The loops of all operators for one instruction set: VARIANT is avx2, avx512 or avx512_bf16, by the compiler's flags. */
#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "layers.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 1 << 21 };

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Memory that a thread keeps for its next call, since a new page costs as much as the work on its numbers: one array for
 * each use. NULL if memory is short. */
enum { PANELS, SPACE, SUMS, LAYER_PANELS, STEP, STEP_SUMS, GATES, STATES, NUM_USES };
static void *array_for(int use, size_t bytes) {
  static _Thread_local struct {
    void *array;
    size_t bytes;
  } kept[NUM_USES];
#ifndef __SANITIZE_ADDRESS__ /* which can only check arrays that have no space to spare */
  if (kept[use].bytes >= bytes && kept[use].array) return kept[use].array;
#endif
  free(kept[use].array);
  size_t alignment = bytes < HUGE_PAGE ? ALIGNMENT : HUGE_PAGE, rounded = round_up(bytes + 1, alignment);
  kept[use].array = aligned_alloc(alignment, rounded);
  if (kept[use].array && alignment == HUGE_PAGE) madvise(kept[use].array, rounded, MADV_HUGEPAGE); /* where they are kept */
  kept[use].bytes = kept[use].array ? bytes : 0;
  return kept[use].array;
}

#include "vectors.h"

/* A product a b adds up DEPTH rows of b at a time, and HEIGHT rows of a meet all panels before the next, so that they stay in
 * the second cache. A kernel's gradient is made WIDTH columns at a time. IN_PANELS: see `blocks`.
 * ROWS_AHEAD: the rows of a panel that are fetched into the first cache. */
enum { DEPTH = 512, HEIGHT = 96, WIDTH = 960, IN_PANELS = 0, ROWS_AHEAD = 8 };
/* Rows of a product lie this far apart: not a power of two, by which all would share a few sets of the first cache. */
#define STRIDE(n) (round_up(n, 2 * LANES) + 2 * LANES)

#define FLOAT32
#include "dtype.h"
#include "product.h"
#include "lstm.h"
#include "gru.h"
#include "loss.h"
#include "attention.h"
#include "decoder.h"
#undef FLOAT32
#include "dtype.h"
#include "product.h"
#include "lstm.h"
#include "gru.h"
#include "loss.h"
#include "attention.h"
#include "decoder.h"

#define STEPS(dtype) {decode_##dtype, decode_grad_##dtype, untied_loss_##dtype, tied_loss_##dtype}
#define OF(dtype) {lstm_##dtype, lstm_grad_##dtype, gru_##dtype, gru_grad_##dtype, STEPS(dtype)}
const Functions VARIANT[2] = {OF(f32), OF(bf16)};
