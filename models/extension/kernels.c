/* Operators for TensorFlow on x86-64 processors, through its C interface (tensorflow/c/kernels.h, ops.h):
 *   RnnScalingLstm, RnnScalingLstmGrad   one LSTM layer, all its products too: weights are packed once a call
 *   RnnScalingGru, RnnScalingGruGrad     the steps of one GRU layer
 *   RnnScalingSoftmaxLoss                cross entropy and its gradient in one pass over the logits
 * T is float32 or bfloat16; sums, gates, states and losses are float32. One thread each. variant.c has the loops, for
 * each instruction set; `rnn_scaling_use` chooses one of those that the processor has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers.h"
#include "tensorflow/c/kernels.h"
/* ops.h, written for C++, names these without saying that they are structures. */
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_DimensionHandle TF_DimensionHandle;
#include "tensorflow/c/ops.h"

enum { MOST_TENSORS = 24 };

static const Functions *functions; /* of the chosen instruction set: of float32, of bfloat16 */

/* Chooses the instruction set of this name, or the best if it is empty. Returns its name, or NULL if this processor does
 * not have it. */
__attribute__((visibility("default"))) const char *rnn_scaling_use(const char *name) {
  __builtin_cpu_init();
  int is_narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  int is_wide = is_narrow && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const struct {
    const char *name;
    int is_present;
    const Functions *functions;
  } variants[] = {{"avx512_bf16", is_wide && __builtin_cpu_supports("avx512bf16"), avx512_bf16},
                  {"avx512", is_wide, avx512},
                  {"avx2", is_narrow, avx2}};
  for (int n = 0; n < 3; n++)
    if (variants[n].is_present && (!*name || !strcmp(name, variants[n].name))) {
      functions = variants[n].functions;
      return variants[n].name;
    }
  return NULL;
}

/* The tensors of one call: inputs first, then outputs, which `close` gives back. */
typedef struct {
  TF_OpKernelContext *context;
  TF_Status *status;
  TF_Tensor *tensors[MOST_TENSORS];
  int count, outputs;
} Call;

static Call open_call(TF_OpKernelContext *context, int inputs) {
  Call call = {.context = context, .status = TF_NewStatus()};
  for (; call.count < inputs && TF_GetCode(call.status) == TF_OK; call.count++)
    TF_GetInput(context, call.count, &call.tensors[call.count], call.status);
  return call;
}

static int64_t size(const Call *call, int input, int axis) { return TF_Dim(call->tensors[input], axis); }
static void *data(const Call *call, int tensor) { return TF_TensorData(call->tensors[tensor]); }
static int is_good(const Call *call) { return TF_GetCode(call->status) == TF_OK; }
static void refuse(Call *call, TF_Code code, const char *text) { TF_SetStatus(call->status, code, text); }

static void out_of_memory(Call *call) { refuse(call, TF_RESOURCE_EXHAUSTED, "no memory for packed weights"); }

/* A new output of `rank` dimensions. */
static void *new_output(Call *call, TF_DataType dtype, int rank, const int64_t *dims) {
  if (!is_good(call)) return NULL;
  size_t bytes = TF_DataTypeSize(dtype);
  for (int axis = 0; axis < rank; axis++) bytes *= dims[axis];
  TF_Tensor *tensor = TF_AllocateOutput(call->context, call->outputs++, dtype, dims, rank, bytes, call->status);
  if (!is_good(call)) return NULL;
  call->tensors[call->count++] = tensor;
  return TF_TensorData(tensor);
}

/* A new output of a matrix's shape and type, in its place where nobody else reads it. The matrix is no longer one of the
 * call's tensors, or the call itself would be a reader; its numbers stay where they are until the output is written. */
static void *in_place_output(Call *call, int input, const int64_t *dims) {
  if (!is_good(call)) return NULL;
  TF_DeleteTensor(call->tensors[input]);
  call->tensors[input] = NULL;
  int taken;
  TF_Tensor *tensor =
      TF_ForwardInputOrAllocateOutput(call->context, &input, 1, call->outputs++, dims, 2, &taken, call->status);
  if (!is_good(call)) return NULL;
  call->tensors[call->count++] = tensor;
  return TF_TensorData(tensor);
}

static void close_call(Call *call) {
  if (!is_good(call)) TF_OpKernelContext_Failure(call->context, call->status);
  for (int n = 0; n < call->count; n++)
    if (call->tensors[n]) TF_DeleteTensor(call->tensors[n]);
  TF_DeleteStatus(call->status);
}

static void lstm(TF_OpKernelContext *context, TF_DataType dtype) {
  enum { X, KERNEL, BIAS, FIRST_C, FIRST_H, LENGTHS, INPUTS };
  Call call = open_call(context, INPUTS);
  if (is_good(&call)) {
    int64_t T = size(&call, X, 0), B = size(&call, X, 1), D = size(&call, X, 2), U = size(&call, FIRST_C, 1);
    int64_t all_gates[] = {T, B, 4 * U}, sequence[] = {T, B, U}, *state = sequence + 1;
    if (size(&call, KERNEL, 0) != D + U || size(&call, KERNEL, 1) != 4 * U || size(&call, BIAS, 0) != 4 * U ||
        size(&call, LENGTHS, 0) != B || size(&call, FIRST_C, 0) != B || size(&call, FIRST_H, 0) != B ||
        size(&call, FIRST_H, 1) != U)
      refuse(&call, TF_INVALID_ARGUMENT, "expected x [T, B, D], kernel [D + U, 4U], bias [4U], states [B, U], lengths [B]");
    LstmLayer layer = {T, B, D, U, data(&call, X), data(&call, KERNEL), data(&call, BIAS), data(&call, FIRST_C),
                       data(&call, FIRST_H), data(&call, LENGTHS)};
    layer.gates = new_output(&call, TF_FLOAT, 3, all_gates), layer.cs = new_output(&call, TF_FLOAT, 3, sequence);
    layer.outputs = new_output(&call, dtype, 3, sequence);
    layer.last_c = new_output(&call, TF_FLOAT, 2, state), layer.last_h = new_output(&call, TF_FLOAT, 2, state);
    if (is_good(&call) && functions[dtype == TF_BFLOAT16].lstm(&layer)) out_of_memory(&call);
  }
  close_call(&call);
}

static void lstm_grad(TF_OpKernelContext *context, TF_DataType dtype) {
  enum { X, KERNEL, FIRST_C, FIRST_H, LENGTHS, GATES, CS, OUTPUTS, D_OUTPUTS, D_LAST_C, D_LAST_H, INPUTS };
  Call call = open_call(context, INPUTS);
  if (is_good(&call)) {
    int64_t T = size(&call, X, 0), B = size(&call, X, 1), D = size(&call, X, 2), U = size(&call, CS, 2);
    int64_t inputs[] = {T, B, D}, weights[] = {D + U, 4 * U}, state[] = {B, U};
    LstmLayer layer = {T, B, D, U, data(&call, X), data(&call, KERNEL)};
    layer.first_c = data(&call, FIRST_C), layer.first_h = data(&call, FIRST_H), layer.lengths = data(&call, LENGTHS);
    layer.gates = data(&call, GATES), layer.cs = data(&call, CS), layer.outputs = data(&call, OUTPUTS);
    layer.d_outputs = data(&call, D_OUTPUTS);
    layer.d_last_c = data(&call, D_LAST_C), layer.d_last_h = data(&call, D_LAST_H);
    layer.d_x = new_output(&call, dtype, 3, inputs), layer.d_kernel = new_output(&call, dtype, 2, weights);
    layer.d_bias = new_output(&call, TF_FLOAT, 1, weights + 1);
    layer.d_c = new_output(&call, TF_FLOAT, 2, state), layer.d_h = new_output(&call, TF_FLOAT, 2, state);
    if (is_good(&call) && functions[dtype == TF_BFLOAT16].lstm_grad(&layer)) out_of_memory(&call);
  }
  close_call(&call);
}

static void gru(TF_OpKernelContext *context, TF_DataType dtype) {
  enum { FROM_INPUT, RECURRENT, BIAS, FIRST_H, LENGTHS, INPUTS };
  Call call = open_call(context, INPUTS);
  if (is_good(&call)) {
    int64_t T = size(&call, FROM_INPUT, 0), B = size(&call, FROM_INPUT, 1), U = size(&call, FIRST_H, 1);
    int64_t all_gates[] = {T, B, 4 * U}, sequence[] = {T, B, U};
    if (size(&call, FROM_INPUT, 2) != 3 * U || size(&call, RECURRENT, 0) != U || size(&call, RECURRENT, 1) != 3 * U ||
        size(&call, BIAS, 0) != 4 * U || size(&call, LENGTHS, 0) != B || size(&call, FIRST_H, 0) != B)
      refuse(&call, TF_INVALID_ARGUMENT,
             "expected from_input [T, B, 3U], recurrent [U, 3U], bias [4U], first_h [B, U], lengths [B]");
    GruLayer layer = {T, B, U, data(&call, FROM_INPUT), data(&call, RECURRENT), data(&call, BIAS), data(&call, FIRST_H),
                      data(&call, LENGTHS)};
    layer.gates = new_output(&call, TF_FLOAT, 3, all_gates), layer.hs = new_output(&call, TF_FLOAT, 3, sequence);
    layer.outputs = new_output(&call, dtype, 3, sequence), layer.last_h = new_output(&call, TF_FLOAT, 2, sequence + 1);
    if (is_good(&call) && functions[dtype == TF_BFLOAT16].gru(&layer)) out_of_memory(&call);
  }
  close_call(&call);
}

static void gru_grad(TF_OpKernelContext *context, TF_DataType dtype) {
  enum { RECURRENT, FIRST_H, LENGTHS, GATES, HS, D_OUTPUTS, D_LAST_H, INPUTS };
  Call call = open_call(context, INPUTS);
  if (is_good(&call)) {
    int64_t T = size(&call, HS, 0), B = size(&call, HS, 1), U = size(&call, HS, 2), products[] = {T, B, 3 * U}, state[] = {B, U};
    GruLayer layer = {T, B, U, NULL, data(&call, RECURRENT), NULL, data(&call, FIRST_H), data(&call, LENGTHS)};
    layer.gates = data(&call, GATES), layer.hs = data(&call, HS);
    layer.d_outputs = data(&call, D_OUTPUTS), layer.d_last_h = data(&call, D_LAST_H);
    layer.d_input = new_output(&call, dtype, 3, products), layer.d_state = new_output(&call, dtype, 3, products);
    layer.d_h = new_output(&call, TF_FLOAT, 2, state);
    if (is_good(&call) && functions[dtype == TF_BFLOAT16].gru_grad(&layer)) out_of_memory(&call);
  }
  close_call(&call);
}

static void softmax_loss(TF_OpKernelContext *context, TF_DataType dtype) {
  enum { LOGITS, LABELS, SMOOTHING, INPUTS };
  Call call = open_call(context, INPUTS);
  if (is_good(&call)) {
    int64_t shape[] = {size(&call, LOGITS, 0), size(&call, LOGITS, 1)}, N = shape[0], V = shape[1];
    const int64_t *labels = data(&call, LABELS);
    if (size(&call, LABELS, 0) != N) refuse(&call, TF_INVALID_ARGUMENT, "expected logits [N, V] and labels [N]");
    for (int64_t n = 0; n < N && is_good(&call); n++)
      if (labels[n] < 0 || labels[n] >= V) refuse(&call, TF_INVALID_ARGUMENT, "expected each label in [0, V)");
    float *losses = new_output(&call, TF_FLOAT, 1, shape), *row = malloc(V * sizeof(float) + 1);
    char *logits = data(&call, LOGITS), *d_logits = in_place_output(&call, LOGITS, shape);
    if (!row) out_of_memory(&call);
    float smoothing = *(const float *)data(&call, SMOOTHING);
    for (int64_t n = 0; n < N && is_good(&call); n++) {
      size_t at = n * V * TF_DataTypeSize(dtype);
      void *from = logits + at, *to = d_logits + at;
      losses[n] = functions[dtype == TF_BFLOAT16].softmax(from, V, labels[n], smoothing, row, to);
    }
    free(row);
  }
  close_call(&call);
}

static void pack(TF_OpKernelContext *context, TF_DataType dtype) {
  Call call = open_call(context, 1);
  if (is_good(&call)) {
    const Functions *of_dtype = &functions[dtype == TF_BFLOAT16];
    int64_t K = size(&call, 0, 0), N = size(&call, 0, 1), bytes = of_dtype->packed_bytes(K, N);
    void *panels = new_output(&call, TF_UINT8, 1, &bytes);
    bytes = of_dtype->packed_bytes(N, K);
    void *transposed = new_output(&call, TF_UINT8, 1, &bytes);
    if (is_good(&call)) of_dtype->pack(data(&call, 0), K, N, panels, transposed);
  }
  close_call(&call);
}

/* Operators inside of a loop over steps, all of whose inputs and outputs are named here: "name: type|SIZES", a letter for
 * the size of each dimension; those of one letter have to agree. */
typedef struct {
  const char *name, *inputs[8], *outputs[4];
} Step;
static const Step steps[] = {
    {"RnnScalingStepProduct", {"x: float|BK", "panels: uint8|P", "addend: float|AN"}, {"result: float|BN"}},
    {"RnnScalingStepGates", {"sums: float|BG", "c: float|BU"}, {"gates: float|BG", "cs: float|BU", "h: float|BU"}},
    {"RnnScalingStepGatesGrad",
     {"gates: float|BG", "c: float|BU", "cs: float|BU", "d_cs: float|BU", "d_h: float|BU"},
     {"d_sums: float|BG", "d_c: float|BU"}},
    {"RnnScalingStepAttend",
     {"query: float|BU", "keys: T|BSU", "memory: T|BSD", "mask: float|BS", "v: T|V"},
     {"context: float|BD", "shares: float|BS"}},
    {"RnnScalingStepAttendGrad",
     {"query: float|BU", "keys: T|BSU", "memory: T|BSD", "v: T|V", "shares: float|BS", "d_context: float|BD"},
     {"d_scores: float|BS", "d_query: float|BU"}},
    {"RnnScalingStepAdditiveGrad",
     {"queries: float|TBU", "keys: T|BSU", "v: T|U", "d_scores: float|TBS"},
     {"d_keys: T|BSU", "d_v: float|U"}}};

static const char *sizes_of(const char *tensor) { return strchr(tensor, '|') + 1; }

static void run_step(TF_OpKernelContext *context, TF_DataType dtype, int which) {
  const Step *step = &steps[which];
  int inputs = 0, fits = 1;
  while (step->inputs[inputs]) inputs++;
  Call call = open_call(context, inputs);
  int64_t sizes[26], dims[4];
  memset(sizes, -1, sizeof sizes);
  for (int n = 0; n < inputs && is_good(&call); n++) {
    const char *letters = sizes_of(step->inputs[n]);
    fits = fits && TF_NumDims(call.tensors[n]) == (int)strlen(letters);
    for (int axis = 0; letters[axis] && fits; axis++) {
      int64_t *known = &sizes[letters[axis] - 'A'], here = size(&call, n, axis);
      fits = *known < 0 || *known == here;
      *known = here;
    }
  }
  if (!fits) refuse(&call, TF_INVALID_ARGUMENT, "the sizes of the inputs do not agree");
  void *all[MOST_TENSORS];
  for (int n = 0; step->outputs[n] && is_good(&call); n++) {
    const char *letters = sizes_of(step->outputs[n]);
    for (int axis = 0; letters[axis]; axis++) dims[axis] = sizes[letters[axis] - 'A'];
    new_output(&call, letters[-2] == 'T' ? dtype : TF_FLOAT, strlen(letters), dims);
  }
  for (int n = 0; n < call.count && is_good(&call); n++) all[n] = data(&call, n);
  if (is_good(&call) && functions[dtype == TF_BFLOAT16].steps[which](sizes, all)) out_of_memory(&call);
  close_call(&call);
}

#define BOTH_DTYPES(f)                                                                                        \
  static void f##_f32(void *kernel, TF_OpKernelContext *context) { f(context, TF_FLOAT); }                    \
  static void f##_bf16(void *kernel, TF_OpKernelContext *context) { f(context, TF_BFLOAT16); }
BOTH_DTYPES(lstm)
BOTH_DTYPES(lstm_grad)
BOTH_DTYPES(gru)
BOTH_DTYPES(gru_grad)
BOTH_DTYPES(softmax_loss)
BOTH_DTYPES(pack)

/* Shape functions: output n is made of dimensions from..to of one input, then those of another (-1: none). */
typedef struct {
  int input, from, to;
} Dims;

static void shape_of(TF_ShapeInferenceContext *context, int output, Dims first, Dims second, TF_Status *status) {
  TF_ShapeHandle *whole = TF_NewShapeHandle(), *part = TF_NewShapeHandle(), *joined = TF_NewShapeHandle();
  TF_ShapeInferenceContextGetInput(context, first.input, whole, status);
  TF_ShapeInferenceContextSubshape(context, whole, first.from, first.to, joined, status);
  if (second.input >= 0) {
    TF_ShapeInferenceContextGetInput(context, second.input, whole, status);
    TF_ShapeInferenceContextSubshape(context, whole, second.from, second.to, part, status);
    TF_ShapeInferenceContextConcatenateShapes(context, joined, part, joined, status);
  }
  TF_ShapeInferenceContextSetOutput(context, output, joined, status);
  TF_DeleteShapeHandle(whole), TF_DeleteShapeHandle(part), TF_DeleteShapeHandle(joined);
}

static const Dims NONE = {-1, 0, 0};

static void lstm_shapes(TF_ShapeInferenceContext *context, TF_Status *status) {
  shape_of(context, 0, (Dims){0, 0, 2}, (Dims){1, 1, 2}, status); /* gates: [T, B] of x, [4U] of the kernel */
  shape_of(context, 1, (Dims){0, 0, 2}, (Dims){3, 1, 2}, status); /* cs, outputs: [U] of first_c */
  shape_of(context, 2, (Dims){0, 0, 2}, (Dims){3, 1, 2}, status);
  shape_of(context, 3, (Dims){3, 0, 2}, NONE, status);
  shape_of(context, 4, (Dims){3, 0, 2}, NONE, status);
}

static void lstm_grad_shapes(TF_ShapeInferenceContext *context, TF_Status *status) {
  shape_of(context, 0, (Dims){0, 0, 3}, NONE, status);
  shape_of(context, 1, (Dims){1, 0, 2}, NONE, status);
  shape_of(context, 2, (Dims){1, 1, 2}, NONE, status);
  shape_of(context, 3, (Dims){2, 0, 2}, NONE, status);
  shape_of(context, 4, (Dims){2, 0, 2}, NONE, status);
}

static void gru_shapes(TF_ShapeInferenceContext *context, TF_Status *status) {
  shape_of(context, 0, (Dims){0, 0, 2}, (Dims){2, 0, 1}, status); /* gates: [T, B] of the input's products, [4U] of the bias */
  shape_of(context, 1, (Dims){0, 0, 2}, (Dims){3, 1, 2}, status); /* hs, outputs: [U] of first_h */
  shape_of(context, 2, (Dims){0, 0, 2}, (Dims){3, 1, 2}, status);
  shape_of(context, 3, (Dims){3, 0, 2}, NONE, status);
}

static void gru_grad_shapes(TF_ShapeInferenceContext *context, TF_Status *status) {
  shape_of(context, 0, (Dims){4, 0, 2}, (Dims){0, 1, 2}, status); /* [T, B] of hs, [3U] of the recurrent matrix */
  shape_of(context, 1, (Dims){4, 0, 2}, (Dims){0, 1, 2}, status);
  shape_of(context, 2, (Dims){1, 0, 2}, NONE, status);
}

static void softmax_loss_shapes(TF_ShapeInferenceContext *context, TF_Status *status) {
  shape_of(context, 0, (Dims){1, 0, 1}, NONE, status);
  shape_of(context, 1, (Dims){0, 0, 2}, NONE, status);
}

static void step_shapes(TF_ShapeInferenceContext *context, TF_Status *status, const Step *step) {
  for (int n = 0; step->outputs[n]; n++) {
    TF_ShapeHandle *whole = TF_NewShapeHandle(), *part = TF_NewShapeHandle(), *joined = NULL;
    for (const char *letter = sizes_of(step->outputs[n]); *letter; letter++) {
      int input = 0;
      while (!strchr(sizes_of(step->inputs[input]), *letter)) input++;
      int axis = strchr(sizes_of(step->inputs[input]), *letter) - sizes_of(step->inputs[input]);
      TF_ShapeInferenceContextGetInput(context, input, whole, status);
      TF_ShapeInferenceContextSubshape(context, whole, axis, axis + 1, part, status);
      if (joined)
        TF_ShapeInferenceContextConcatenateShapes(context, joined, part, joined, status);
      else
        joined = part, part = TF_NewShapeHandle();
    }
    TF_ShapeInferenceContextSetOutput(context, n, joined, status);
    TF_DeleteShapeHandle(whole), TF_DeleteShapeHandle(part), TF_DeleteShapeHandle(joined);
  }
}

/* The functions of each step, by its place in the list. */
#define STEP(n)                                                                                                       \
  static void step##n##_f32(void *kernel, TF_OpKernelContext *context) { run_step(context, TF_FLOAT, n); }             \
  static void step##n##_bf16(void *kernel, TF_OpKernelContext *context) { run_step(context, TF_BFLOAT16, n); }         \
  static void step##n##_shapes(TF_ShapeInferenceContext *context, TF_Status *status) {                                 \
    step_shapes(context, status, &steps[n]);                                                                           \
  }
STEP(0)
STEP(1)
STEP(2)
STEP(3)
STEP(4)
STEP(5)

typedef void Compute(void *, TF_OpKernelContext *);
typedef void Shapes(TF_ShapeInferenceContext *, TF_Status *);

/* Registers an operator, "name: type" a word of inputs and outputs, and its kernels; says on stderr what fails. */
static void add(const char *name, const char *const *inputs, const char *const *outputs, Shapes *shapes,
                Compute *float32, Compute *bf16) {
  TF_OpDefinitionBuilder *op = TF_NewOpDefinitionBuilder(name);
  TF_OpDefinitionBuilderAddAttr(op, "T: {float, bfloat16} = DT_FLOAT");
  char spec[64] = "";
  for (; *inputs; inputs++) {
    sscanf(*inputs, "%63[^|]", spec);
    TF_OpDefinitionBuilderAddInput(op, spec);
  }
  for (; *outputs; outputs++) {
    sscanf(*outputs, "%63[^|]", spec);
    TF_OpDefinitionBuilderAddOutput(op, spec);
  }
  if (shapes) TF_OpDefinitionBuilderSetShapeInferenceFunction(op, shapes);
  TF_Status *status = TF_NewStatus();
  TF_RegisterOpDefinition(op, status);
  for (int n = 0; n < 2 && TF_GetCode(status) == TF_OK; n++) {
    TF_KernelBuilder *kernel = TF_NewKernelBuilder(name, "CPU", NULL, n ? bf16 : float32, NULL);
    TF_KernelBuilder_TypeConstraint(kernel, "T", n ? TF_BFLOAT16 : TF_FLOAT, status);
    if (TF_GetCode(status) == TF_OK) TF_RegisterKernelBuilder(name, kernel, status);
  }
  if (TF_GetCode(status) != TF_OK) fprintf(stderr, "error: operator %s: %s\n", name, TF_Message(status));
  TF_DeleteStatus(status);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Runs when the library is loaded. */
__attribute__((constructor)) static void register_all(void) {
  if (!rnn_scaling_use("")) return;
  add("RnnScalingLstm",
      WORDS("x: T", "kernel: T", "bias: float", "first_c: float", "first_h: float", "lengths: int32"),
      WORDS("gates: float", "cs: float", "outputs: T", "last_c: float", "last_h: float"), lstm_shapes, lstm_f32,
      lstm_bf16);
  add("RnnScalingLstmGrad",
      WORDS("x: T", "kernel: T", "first_c: float", "first_h: float", "lengths: int32", "gates: float", "cs: float",
            "outputs: T", "d_outputs: T", "d_last_c: float", "d_last_h: float"),
      WORDS("d_x: T", "d_kernel: T", "d_bias: float", "d_c: float", "d_h: float"), lstm_grad_shapes, lstm_grad_f32,
      lstm_grad_bf16);
  add("RnnScalingGru", WORDS("from_input: T", "recurrent: T", "bias: float", "first_h: float", "lengths: int32"),
      WORDS("gates: float", "hs: float", "outputs: T", "last_h: float"), gru_shapes, gru_f32, gru_bf16);
  add("RnnScalingGruGrad",
      WORDS("recurrent: T", "first_h: float", "lengths: int32", "gates: float", "hs: float", "d_outputs: T",
            "d_last_h: float"),
      WORDS("d_input: T", "d_state: T", "d_h: float"), gru_grad_shapes, gru_grad_f32, gru_grad_bf16);
  add("RnnScalingSoftmaxLoss", WORDS("logits: T", "labels: int64", "smoothing: float"), WORDS("losses: float", "d_logits: T"),
      softmax_loss_shapes, softmax_loss_f32, softmax_loss_bf16);
  add("RnnScalingPack", WORDS("matrix: T"), WORDS("panels: uint8", "transposed: uint8"), NULL, pack_f32, pack_bf16);
#define ADD(n) add(steps[n].name, steps[n].inputs, steps[n].outputs, step##n##_shapes, step##n##_f32, step##n##_bf16)
  ADD(0), ADD(1), ADD(2), ADD(3), ADD(4), ADD(5);
}
