/* Operators for TensorFlow on x86-64 processors, through its C interface (tensorflow/c/kernels.h, ops.h):
 *   RnnScalingLstm, RnnScalingLstmGrad   one LSTM layer, all its products too: weights are packed once a call
 *   RnnScalingGru, RnnScalingGruGrad     the steps of one GRU layer
 *   RnnScalingDecode, RnnScalingDecodeGrad   all steps of a decoder with attention
 *   RnnScalingLoss, RnnScalingTiedLoss   projection to words, cross entropy and the logits' gradient
 * T is float32 or bfloat16; sums, gates, states and losses are float32. One thread each. variant.c has the loops, for
 * each instruction set; `rnn_scaling_use` chooses one of those that the processor has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers.h"
#include "tensorflow/c/kernels.h"
/* Set-up compiles only the instruction sets of its processor; those that are missing are NULL. */
#pragma weak avx2
#pragma weak avx512
#pragma weak avx512_bf16
/* ops.h, written for C++, names these without saying that they are structures. */
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_DimensionHandle TF_DimensionHandle;
#include "tensorflow/c/ops.h"

enum { MOST_TENSORS = 26, MOST_INPUTS = 16, MOST_OUTPUTS = 10 };

static const Functions *functions; /* of the chosen instruction set: of float32, of bfloat16 */

/* Chooses the instruction set of this name, or the best if it is empty. Returns its name, or NULL if this processor does
 * not have it or it was not compiled. */
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
    if (variants[n].is_present && variants[n].functions && (!*name || !strcmp(name, variants[n].name))) {
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

static void out_of_memory(Call *call) { refuse(call, TF_RESOURCE_EXHAUSTED, "no memory for the operator's arrays"); }
static void wrong_sizes(Call *call) { refuse(call, TF_INVALID_ARGUMENT, "the sizes of the inputs do not agree"); }

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

static void close_call(Call *call) {
  if (!is_good(call)) TF_OpKernelContext_Failure(call->context, call->status);
  for (int n = 0; n < call->count; n++)
    if (call->tensors[n]) TF_DeleteTensor(call->tensors[n]);
  TF_DeleteStatus(call->status);
}

static int lstm(const Functions *of_dtype, const int64_t *sizes, void **data) {
  LstmLayer layer = {SIZE('T'), SIZE('B'), SIZE('D'), SIZE('U'), .x = data[0], .kernel = data[1], .bias = data[2],
                     .first_c = data[3], .first_h = data[4], .lengths = data[5], .gates = data[6], .cs = data[7],
                     .outputs = data[8], .last_c = data[9], .last_h = data[10]};
  return SIZE('K') == layer.D + layer.U && SIZE('G') == 4 * layer.U ? of_dtype->lstm(&layer) : WRONG_SIZES;
}

static int lstm_grad(const Functions *of_dtype, const int64_t *sizes, void **data) {
  LstmLayer layer = {SIZE('T'), SIZE('B'), SIZE('D'), SIZE('U'), .x = data[0], .kernel = data[1], .first_c = data[2],
                     .first_h = data[3], .lengths = data[4], .gates = data[5], .cs = data[6], .outputs = data[7],
                     .d_outputs = data[8], .d_last_c = data[9], .d_last_h = data[10], .d_x = data[11],
                     .d_kernel = data[12], .d_bias = data[13], .d_c = data[14], .d_h = data[15]};
  return SIZE('K') == layer.D + layer.U && SIZE('G') == 4 * layer.U ? of_dtype->lstm_grad(&layer) : WRONG_SIZES;
}

static int gru(const Functions *of_dtype, const int64_t *sizes, void **data) {
  GruLayer layer = {SIZE('T'), SIZE('B'), SIZE('U'), .from_input = data[0], .recurrent = data[1], .bias = data[2],
                    .first_h = data[3], .lengths = data[4], .gates = data[5], .hs = data[6], .outputs = data[7],
                    .last_h = data[8]};
  return SIZE('I') == 3 * layer.U && SIZE('G') == 4 * layer.U ? of_dtype->gru(&layer) : WRONG_SIZES;
}

static int gru_grad(const Functions *of_dtype, const int64_t *sizes, void **data) {
  GruLayer layer = {SIZE('T'), SIZE('B'), SIZE('U'), .recurrent = data[0], .first_h = data[1], .lengths = data[2],
                    .gates = data[3], .hs = data[4], .d_outputs = data[5], .d_last_h = data[6], .d_input = data[7],
                    .d_state = data[8], .d_h = data[9]};
  return SIZE('I') == 3 * layer.U && SIZE('G') == 4 * layer.U ? of_dtype->gru_grad(&layer) : WRONG_SIZES;
}

/* Operators whose tensors are described here: "name: type|SIZES", a letter for the size of each dimension; those of one
 * letter have to agree. Without a function, an operator is that of `Functions.steps` at the same place in the list. */
typedef struct {
  const char *name, *inputs[MOST_INPUTS], *outputs[MOST_OUTPUTS]; /* NULL after the last */
  int (*run)(const Functions *of_dtype, const int64_t *sizes, void **data);
} Operator;
static const Operator operators[] = {
    {"RnnScalingDecode",
     {"from_words: T|TBG", "biases: float|LG", "kernels: T|RG", "first_c: float|LBU", "first_h: float|LBU", "keys: T|BSU",
      "memory: T|BSD", "mask: float|BS", "v: T|V", "matrix: T|WU", "dropped: float|M"},
     {"gates: float|LTBG", "cs: float|LTBU", "hs: float|LTBU", "shares: float|TBS", "contexts: float|TBD",
      "made: float|TBU"}},
    {"RnnScalingDecodeGrad",
     {"kernels: T|RG", "first_c: float|LBU", "keys: T|BSU", "memory: T|BSD", "v: T|V", "matrix: T|WU", "dropped: float|M",
      "gates: float|LTBG", "cs: float|LTBU", "hs: float|LTBU", "shares: float|TBS", "made: float|TBU",
      "d_contexts: float|TBD", "d_tops: float|TBU", "d_made: float|TBU"},
     {"d_gates: T|LTBG", "d_biases: float|LG", "d_scores: float|TBS", "d_products: float|TBU", "d_all_contexts: float|TBD",
      "d_first_c: float|LBU", "d_first_h: float|LBU", "d_keys: float|BSV", "d_v: float|V"}},
    {"RnnScalingLoss",
     {"hidden: T|NU", "projection: T|UV", "bias: float|B", "labels: int64|N", "smoothing: float|"},
     {"losses: float|N", "is_right: float|N", "d_logits: T|NV"}},
    {"RnnScalingTiedLoss",
     {"hidden: T|NU", "projection: T|VU", "bias: float|B", "labels: int64|N", "smoothing: float|"},
     {"losses: float|N", "is_right: float|N", "d_logits: T|NV"}},
    {"RnnScalingLstm",
     {"x: T|TBD", "kernel: T|KG", "bias: float|G", "first_c: float|BU", "first_h: float|BU", "lengths: int32|B"},
     {"gates: float|TBG", "cs: float|TBU", "outputs: T|TBU", "last_c: float|BU", "last_h: float|BU"},
     lstm},
    {"RnnScalingLstmGrad",
     {"x: T|TBD", "kernel: T|KG", "first_c: float|BU", "first_h: float|BU", "lengths: int32|B", "gates: float|TBG",
      "cs: float|TBU", "outputs: T|TBU", "d_outputs: T|TBU", "d_last_c: float|BU", "d_last_h: float|BU"},
     {"d_x: T|TBD", "d_kernel: T|KG", "d_bias: float|G", "d_c: float|BU", "d_h: float|BU"},
     lstm_grad},
    {"RnnScalingGru",
     {"from_input: T|TBI", "recurrent: T|UI", "bias: float|G", "first_h: float|BU", "lengths: int32|B"},
     {"gates: float|TBG", "hs: float|TBU", "outputs: T|TBU", "last_h: float|BU"},
     gru},
    {"RnnScalingGruGrad",
     {"recurrent: T|UI", "first_h: float|BU", "lengths: int32|B", "gates: float|TBG", "hs: float|TBU", "d_outputs: T|TBU",
      "d_last_h: float|BU"},
     {"d_input: T|TBI", "d_state: T|TBI", "d_h: float|BU"},
     gru_grad}};

static const char *sizes_of(const char *tensor) { return strchr(tensor, '|') + 1; }

/* Takes the inputs' sizes by letter, -1 of those that no input has. Returns whether those of one letter agree. */
static int read_sizes(const Call *call, const Operator *operator, int64_t sizes[26]) {
  memset(sizes, -1, 26 * sizeof *sizes);
  for (int n = 0; n < call->count; n++) {
    const char *letters = sizes_of(operator->inputs[n]);
    if (TF_NumDims(call->tensors[n]) != (int)strlen(letters)) return 0;
    for (int axis = 0; letters[axis]; axis++) {
      int64_t *known = &sizes[letters[axis] - 'A'], here = size(call, n, axis);
      if (*known >= 0 && *known != here) return 0;
      *known = here;
    }
  }
  return 1;
}

static void run_operator(TF_OpKernelContext *context, TF_DataType dtype, int which) {
  const Operator *operator = &operators[which];
  int inputs = 0;
  while (operator->inputs[inputs]) inputs++;
  Call call = open_call(context, inputs);
  int64_t sizes[26], dims[4];
  if (is_good(&call) && !read_sizes(&call, operator, sizes)) wrong_sizes(&call);
  void *all[MOST_TENSORS];
  for (int n = 0; operator->outputs[n] && is_good(&call); n++) {
    const char *letters = sizes_of(operator->outputs[n]);
    for (int axis = 0; letters[axis]; axis++) dims[axis] = sizes[letters[axis] - 'A'];
    new_output(&call, letters[-2] == 'T' ? dtype : TF_FLOAT, strlen(letters), dims);
  }
  for (int n = 0; n < call.count && is_good(&call); n++) all[n] = data(&call, n);
  if (is_good(&call)) {
    const Functions *of_dtype = &functions[dtype == TF_BFLOAT16];
    int failure = operator->run ? operator->run(of_dtype, sizes, all) : of_dtype->steps[which](sizes, all);
    if (failure == NO_MEMORY) out_of_memory(&call);
    if (failure == WRONG_SIZES) wrong_sizes(&call);
    if (failure == WRONG_LABEL) refuse(&call, TF_INVALID_ARGUMENT, "expected each label in [0, V)");
  }
  close_call(&call);
}

static void shapes_of(TF_ShapeInferenceContext *context, TF_Status *status, const Operator *operator) {
  for (int n = 0; operator->outputs[n]; n++) {
    TF_ShapeHandle *whole = TF_NewShapeHandle(), *part = TF_NewShapeHandle(), *joined = NULL;
    for (const char *letter = sizes_of(operator->outputs[n]); *letter; letter++) {
      int input = 0;
      while (!strchr(sizes_of(operator->inputs[input]), *letter)) input++;
      int axis = strchr(sizes_of(operator->inputs[input]), *letter) - sizes_of(operator->inputs[input]);
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

/* TensorFlow's functions of each operator, by its place in the list. */
#define FUNCTIONS_OF(n)                                                                                                 \
  static void run##n##_f32(void *kernel, TF_OpKernelContext *context) { run_operator(context, TF_FLOAT, n); }          \
  static void run##n##_bf16(void *kernel, TF_OpKernelContext *context) { run_operator(context, TF_BFLOAT16, n); }      \
  static void shapes##n(TF_ShapeInferenceContext *context, TF_Status *status) { shapes_of(context, status, &operators[n]); }
#define ALL_OPERATORS(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
ALL_OPERATORS(FUNCTIONS_OF)

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
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, shapes);
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

/* Runs when the library is loaded. */
__attribute__((constructor)) static void register_all(void) {
  if (!rnn_scaling_use("")) return;
#define ADD(n) add(operators[n].name, operators[n].inputs, operators[n].outputs, shapes##n, run##n##_f32, run##n##_bf16);
  ALL_OPERATORS(ADD)
}
