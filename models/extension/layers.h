/* What the operators compute, for kernels.c, which has TensorFlow's tensors, and variant.c, which has the loops.
 * T: steps, B: sentences, D: width of the input, U: units; all arrays are row-major. "Elements" are float32 or bfloat16. */
#include <stdint.h>

#define SIZE(letter) (sizes[letter - 'A']) /* of the dimensions that kernels.c calls by it */

/* One LSTM layer; its G = 4U gates are in the order i, ci, f, o. */
typedef struct {
  int64_t T, B, D, U;
  const void *x, *kernel;                      /* elements [T, B, D], [D + U, G] */
  const float *bias, *first_c, *first_h;       /* [G] with the forget gate's, [B, U] */
  const int32_t *lengths;                      /* [B] */
  float *gates, *cs;                           /* [T, B, G] after their nonlinearity, [T, B, U] cell states */
  void *outputs;                               /* elements [T, B, U], zero past a sentence's length */
  float *last_c, *last_h;                      /* [B, U] at each sentence's length */
  const void *d_outputs;                       /* backward: gradients of what was made ... */
  const float *d_last_c, *d_last_h;
  void *d_x, *d_kernel;                        /* ... and of what was given */
  float *d_bias, *d_c, *d_h;
} LstmLayer;

/* The steps of one GRU layer; its three gates are in the order r, u, n. */
typedef struct {
  int64_t T, B, U;
  const void *from_input, *recurrent;          /* elements [T, B, 3U] before their bias, [U, 3U] */
  const float *bias, *first_h;                 /* [4U]: of r, u, n, and of the state's product that r multiplies; [B, U] */
  const int32_t *lengths;                      /* [B] */
  float *gates, *hs;                           /* [T, B, 4U]: r, u, n, and what r multiplies; [T, B, U] states */
  void *outputs;                               /* elements [T, B, U], zero past a sentence's length */
  float *last_h;                               /* [B, U] at each sentence's length */
  const void *d_outputs;                       /* backward */
  const float *d_last_h;
  void *d_input, *d_state;                     /* elements [T, B, 3U]: of the input's and of the state's products */
  float *d_h;
} GruLayer;

enum { DONE, NO_MEMORY, WRONG_SIZES, WRONG_LABEL };
/* Functions for one type of elements. Layers return one of these. */
typedef struct {
  int (*lstm)(const LstmLayer *), (*lstm_grad)(const LstmLayer *), (*gru)(const GruLayer *), (*gru_grad)(const GruLayer *);
  /* Of sizes by letter and the data of inputs and outputs (the list in kernels.c); they return what layers do. */
  int (*steps[4])(const int64_t *sizes, void **data);
} Functions;

/* For float32 and for bfloat16. Hidden, so that a missing one is NULL and not another library's symbol. */
#pragma GCC visibility push(hidden)
extern const Functions avx2[2], avx512[2], avx512_bf16[2];
#pragma GCC visibility pop
