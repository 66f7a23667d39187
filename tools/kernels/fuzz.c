/* Runs the operators of models/extension on random shapes, and compares each number with plain loops in double.
 *
 *   fuzz [VARIANT|all] [CASES] [SEED]     case n has the seed SEED + n (0), so that one case can be run again
 *
 * Each array has exactly its size on the heap: AddressSanitizer sees a read or write outside it. Results are NaN before.
 * A number passes within TOLERANCE times the largest of its array, or of 1 in float32 and 0.1 in bfloat16: float32 sums of some hundred
 * products, or bfloat16's 8 bits. Only variants that were linked and that the processor has are run (tools/kernels/sanitize). */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../models/extension/layers.h"

#pragma weak avx2
#pragma weak avx512
#pragma weak avx512_bf16

enum { MOST = 400, FLOAT = 0, ELEMENT = 1 };
static const double TOLERANCE[] = {2e-5, 2e-2}; /* of float32, of bfloat16 */

/* What an operator reads or writes, and the numbers it must contain; NaN: any. */
typedef struct {
  const char *name;
  int64_t size;
  int is_bf16;
  void *data;
  double *value;
} Array;

static Array arrays[64]; /* of the case that runs */
static int array_count, is_bf16;
static int64_t seed;
static uint64_t random_state;
static double worst[2]; /* errors by type, in tolerances */

static double uniform(double least, double most) {
  uint64_t x = random_state += 0x9E3779B97F4A7C15u; /* splitmix64 */
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return least + (most - least) * ((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

static int64_t below(int64_t n) { return (int64_t)uniform(0, n); }

/* A size up to `most`: often 1, a power of two or next to one; now and then 0. */
static int64_t any_size(int64_t most) {
  int64_t power = 1 << below(7), sizes[] = {below(8) > 0, power, power - 1, power + 1, below(most) + 1, below(most) + 1};
  int64_t size = sizes[below(6)];
  return size > most ? most : size;
}

/* As bfloat16, to nearest even, where elements are that; the operators' products take states and gradients so. */
static double rounded(double x) {
  float value = (float)x;
  uint32_t bits;
  memcpy(&bits, &value, 4);
  bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000u;
  memcpy(&value, &bits, 4);
  return is_bf16 && isfinite(x) ? value : x;
}

static double number(const Array *array, int64_t n) {
  if (!array->is_bf16) return ((float *)array->data)[n];
  uint32_t bits = (uint32_t)((uint16_t *)array->data)[n] << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

/* An array for results. */
static Array *made(const char *name, int64_t size, int is_element) {
  Array *array = &arrays[array_count++];
  *array = (Array){name, size, is_element && is_bf16, NULL, malloc(size * sizeof(double) + 1)};
  size_t bytes = size * (array->is_bf16 ? 2 : 4);
  array->data = malloc(bytes);
  memset(array->data, 0xFF, bytes);
  for (int64_t n = 0; n < size; n++) array->value[n] = NAN;
  return array;
}

static void set(Array *array, int64_t n, double x) {
  float value = (float)(array->is_bf16 ? rounded(x) : x);
  memcpy((char *)array->data + n * (array->is_bf16 ? 2 : 4), (char *)&value + 2 * array->is_bf16, array->is_bf16 ? 2 : 4);
  array->value[n] = value;
}

/* An array of random numbers between -scale and scale, which the operators must leave as they are. */
static Array *given(const char *name, int64_t size, int is_element, double scale) {
  Array *array = made(name, size, is_element);
  for (int64_t n = 0; n < size; n++) set(array, n, uniform(-scale, scale));
  return array;
}

static Array *zeros(Array *array) {
  for (int64_t n = 0; n < array->size; n++) array->value[n] = 0;
  return array;
}

static void fail(const char *format, ...) {
  va_list words;
  va_start(words, format);
  printf("FAILED: "), vprintf(format, words), printf("\n");
  exit(1);
}

static void check_arrays(void) {
  for (Array *array = arrays; array < arrays + array_count; array++) {
    double largest = is_bf16 ? 0.1 : 1;
    for (int64_t n = 0; n < array->size; n++)
      if (isfinite(array->value[n])) largest = fmax(largest, fabs(array->value[n]));
    for (int64_t n = 0; n < array->size; n++) {
      double got = number(array, n), want = array->value[n];
      if (isnan(want) || got == want) continue;
      double error = fabs(got - want) / largest / TOLERANCE[is_bf16];
      if (!(error <= 1)) fail("%s[%ld of %ld]: %.9g, expected %.9g", array->name, n, array->size, got, want);
      worst[is_bf16] = fmax(worst[is_bf16], error);
    }
    free(array->data), free(array->value);
  }
  array_count = 0;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* T, B, D, U; now and then of more rows and columns than product.h takes in one block: many steps, or many units. */
static void any_shape(int64_t *shape) {
  static const int64_t first[][4] = {{0, 69, 3, 5}, {1, 1, 1, 1}, {3, 0, 3, 5}, {2, 5, 0, 7}, {30, 70, 2, 3}, {1, 3, 110, 250}};
  if (seed < 6) {
    memcpy(shape, first[seed], sizeof first[0]);
    return;
  }
  static const int64_t limits[][4] = {{8, 37, 70, 70}, {40, 70, 5, 9}, {2, 9, 120, 250}};
  const int64_t *most = limits[below(10) ? 0 : 1 + below(2)];
  for (int n = 0; n < 4; n++) shape[n] = any_size(most[n]);
}

static int32_t *any_lengths(int64_t T, int64_t B) {
  int32_t *lengths = malloc(B * sizeof *lengths);
  for (int64_t b = 0; b < B; b++) lengths[b] = (int32_t)(below(3) ? T : T ? 1 + below(T) : 0);
  return lengths;
}

static void check_lstm(const Functions *functions) {
  int64_t shape[4];
  any_shape(shape);
  int64_t T = shape[0], B = shape[1], D = shape[2], U = shape[3], G = 4 * U, K = D + U, N = T * B;
  printf("lstm T=%ld B=%ld D=%ld U=%ld\n", T, B, D, U), fflush(stdout);
  int32_t *lengths = any_lengths(T, B);
  Array *x = given("x", N * D, ELEMENT, 2), *kernel = given("kernel", K * G, ELEMENT, 1.5 / sqrt(K + 1));
  Array *bias = given("bias", G, FLOAT, below(8) || N > 40 ? 1 : 100), *first_c = given("first_c", B * U, FLOAT, 2);
  Array *first_h = given("first_h", B * U, FLOAT, 1), *gates = made("gates", N * G, FLOAT), *cs = made("cs", N * U, FLOAT);
  Array *outputs = zeros(made("outputs", N * U, ELEMENT));
  Array *last_c = made("last_c", B * U, FLOAT), *last_h = made("last_h", B * U, FLOAT);
  Array *d_outputs = given("d_outputs", N * U, ELEMENT, 1), *d_last_c = given("d_last_c", B * U, FLOAT, 1);
  Array *d_last_h = given("d_last_h", B * U, FLOAT, 1), *d_x = zeros(made("d_x", N * D, ELEMENT));
  Array *d_kernel = zeros(made("d_kernel", K * G, ELEMENT)), *d_bias = zeros(made("d_bias", G, FLOAT));
  Array *d_first_c = made("d_c", B * U, FLOAT), *d_first_h = made("d_h", B * U, FLOAT);
  LstmLayer layer = {T, B, D, U, x->data, kernel->data, bias->data, first_c->data, first_h->data, lengths,
                     gates->data, cs->data, outputs->data, last_c->data, last_h->data};
  if (functions->lstm(&layer)) fail("lstm: no memory");
  layer.bias = layer.last_c = layer.last_h = NULL; /* the gradient is not given them */
  layer.d_outputs = d_outputs->data, layer.d_last_c = d_last_c->data, layer.d_last_h = d_last_h->data;
  layer.d_x = d_x->data, layer.d_kernel = d_kernel->data, layer.d_bias = d_bias->data;
  layer.d_c = d_first_c->data, layer.d_h = d_first_h->data;
  if (functions->lstm_grad(&layer)) fail("lstm_grad: no memory");
  for (int64_t b = 0; b < B; b++) {
    double *c = last_c->value + b * U, *h = last_h->value + b * U, sums[4 * MOST], xh[MOST];
    memcpy(c, first_c->value + b * U, U * sizeof *c), memcpy(h, first_h->value + b * U, U * sizeof *h);
    for (int64_t row = b; row < lengths[b] * B; row += B) {
      for (int64_t g = 0; g < G; g++) {
        sums[g] = bias->value[g];
        for (int64_t d = 0; d < D; d++) sums[g] += x->value[row * D + d] * kernel->value[d * G + g];
        for (int64_t u = 0; u < U; u++) sums[g] += rounded(h[u]) * kernel->value[(D + u) * G + g];
      }
      double *gate = gates->value + row * G;
      for (int64_t g = 0; g < G; g++) gate[g] = g / U == 1 ? tanh(sums[g]) : sigmoid(sums[g]);
      for (int64_t u = 0; u < U; u++) {
        c[u] = gate[2 * U + u] * c[u] + gate[u] * gate[U + u], h[u] = gate[3 * U + u] * tanh(c[u]);
        cs->value[row * U + u] = c[u], outputs->value[row * U + u] = h[u];
      }
    }
    double *d_c = d_first_c->value + b * U, *d_h = d_first_h->value + b * U;
    for (int64_t u = 0; u < U; u++) d_c[u] = T ? d_last_c->value[b * U + u] : 0, d_h[u] = T ? d_last_h->value[b * U + u] : 0;
    for (int64_t row = (lengths[b] - 1) * B + b; row >= 0; row -= B) {
      const double *gate = gates->value + row * G, *c_before = row < B ? first_c->value + b * U : cs->value + (row - B) * U;
      for (int64_t d = 0; d < D; d++) xh[d] = x->value[row * D + d];
      for (int64_t u = 0; u < U; u++) {
        double i = gate[u], ci = gate[U + u], f = gate[2 * U + u], o = gate[3 * U + u], co = tanh(cs->value[row * U + u]);
        double d_out = d_h[u] + d_outputs->value[row * U + u], d_cell = d_c[u] + d_out * o * (1 - co * co);
        sums[u] = d_cell * ci * i * (1 - i), sums[U + u] = d_cell * i * (1 - ci * ci);
        sums[2 * U + u] = d_cell * c_before[u] * f * (1 - f), sums[3 * U + u] = d_out * co * o * (1 - o);
        d_c[u] = d_cell * f, d_h[u] = 0;
        xh[D + u] = rounded(row < B ? first_h->value[b * U + u] : outputs->value[(row - B) * U + u]);
      }
      for (int64_t g = 0; g < G; g++) {
        d_bias->value[g] += sums[g];
        for (int64_t k = 0; k < K; k++) {
          d_kernel->value[k * G + g] += xh[k] * rounded(sums[g]);
          *(k < D ? &d_x->value[row * D + k] : &d_h[k - D]) += kernel->value[k * G + g] * rounded(sums[g]);
        }
      }
    }
  }
  check_arrays();
  free(lengths);
}

static void check_gru(const Functions *functions) {
  int64_t shape[4];
  any_shape(shape);
  int64_t T = shape[0], B = shape[1], U = shape[3], G = 3 * U, N = T * B;
  printf("gru T=%ld B=%ld U=%ld\n", T, B, U), fflush(stdout);
  int32_t *lengths = any_lengths(T, B);
  Array *input = given("from_input", N * G, ELEMENT, 2), *recurrent = given("recurrent", U * G, ELEMENT, 1.5 / sqrt(U + 1));
  Array *bias = given("bias", 4 * U, FLOAT, below(8) || N > 40 ? 1 : 100), *first_h = given("first_h", B * U, FLOAT, 1);
  Array *gates = made("gates", N * 4 * U, FLOAT), *hs = made("hs", N * U, FLOAT);
  Array *outputs = zeros(made("outputs", N * U, ELEMENT)), *last_h = made("last_h", B * U, FLOAT);
  Array *d_outputs = given("d_outputs", N * U, ELEMENT, 1), *d_last_h = given("d_last_h", B * U, FLOAT, 1);
  Array *d_input = zeros(made("d_input", N * G, ELEMENT)), *d_state = zeros(made("d_state", N * G, ELEMENT));
  Array *d_first_h = made("d_h", B * U, FLOAT);
  GruLayer layer = {T, B, U, input->data, recurrent->data, bias->data, first_h->data, lengths,
                    gates->data, hs->data, outputs->data, last_h->data};
  if (functions->gru(&layer)) fail("gru: no memory");
  layer.from_input = layer.outputs = NULL, layer.bias = layer.last_h = NULL; /* the gradient is not given them */
  layer.d_outputs = d_outputs->data, layer.d_last_h = d_last_h->data;
  layer.d_input = d_input->data, layer.d_state = d_state->data, layer.d_h = d_first_h->data;
  if (functions->gru_grad(&layer)) fail("gru_grad: no memory");
  for (int64_t b = 0; b < B; b++) {
    double *h = last_h->value + b * U, sums[3 * MOST];
    memcpy(h, first_h->value + b * U, U * sizeof *h);
    for (int64_t row = b; row < lengths[b] * B; row += B) {
      for (int64_t g = 0; g < G; g++) {
        sums[g] = 0;
        for (int64_t u = 0; u < U; u++) sums[g] += rounded(h[u]) * recurrent->value[u * G + g];
      }
      double *gate = gates->value + row * 4 * U, *from = input->value + row * G, *of = bias->value;
      for (int64_t u = 0; u < U; u++) {
        double r = gate[u] = sigmoid(from[u] + of[u] + sums[u]);
        double z = gate[U + u] = sigmoid(from[U + u] + of[U + u] + sums[U + u]);
        gate[3 * U + u] = sums[2 * U + u] + of[3 * U + u];
        double n = gate[2 * U + u] = tanh(from[2 * U + u] + of[2 * U + u] + r * gate[3 * U + u]);
        outputs->value[row * U + u] = hs->value[row * U + u] = h[u] = n + z * (h[u] - n);
      }
    }
    double *d_h = d_first_h->value + b * U;
    for (int64_t u = 0; u < U; u++) d_h[u] = T ? d_last_h->value[b * U + u] : 0;
    for (int64_t row = (lengths[b] - 1) * B + b; row >= 0; row -= B) {
      const double *gate = gates->value + row * 4 * U, *before = row < B ? first_h->value + b * U : hs->value + (row - B) * U;
      double *of_input = d_input->value + row * G, *of_state = d_state->value + row * G;
      for (int64_t u = 0; u < U; u++) {
        double r = gate[u], z = gate[U + u], n = gate[2 * U + u], d = d_h[u] + d_outputs->value[row * U + u];
        double d_n = d * (1 - z) * (1 - n * n);
        of_input[u] = of_state[u] = d_n * gate[3 * U + u] * r * (1 - r);
        of_input[U + u] = of_state[U + u] = d * (before[u] - n) * z * (1 - z);
        of_input[2 * U + u] = d_n, of_state[2 * U + u] = d_n * r;
        d_h[u] = d * z;
      }
      for (int64_t u = 0; u < U; u++)
        for (int64_t g = 0; g < G; g++) d_h[u] += recurrent->value[u * G + g] * rounded(of_state[g]);
    }
  }
  check_arrays();
  free(lengths);
}

#include "fuzz_steps.h"

int main(int count, char **words) {
  const char *wanted = count > 1 ? words[1] : "all";
  int64_t cases = count > 2 ? atol(words[2]) : 100, first = count > 3 ? atol(words[3]) : 0, variants_run = 0;
  __builtin_cpu_init();
  int is_narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  int is_wide = is_narrow && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#ifdef EMULATED_AVX512 /* emulated.h */
  is_wide = is_narrow;
#endif
  int has_bf16 = is_wide && __builtin_cpu_supports("avx512bf16");
#ifdef EMULATED_BF16
  has_bf16 = is_wide;
#endif
  const struct {
    const char *name;
    const Functions *functions;
    int is_present;
  } variants[] = {{"avx2", avx2, is_narrow}, {"avx512", avx512, is_wide}, {"avx512_bf16", avx512_bf16, has_bf16}};
  static void (*const checks[])(const Functions *) = {check_lstm, check_gru, check_loss, check_decode};
  for (int n = 0; n < 3; n++) {
    if (!variants[n].functions || !variants[n].is_present || (strcmp(wanted, "all") && strcmp(wanted, variants[n].name)))
      continue;
    variants_run++, worst[0] = worst[1] = 0;
    for (seed = first; seed < first + cases; seed++)
      for (unsigned check = 0; check < sizeof checks / sizeof *checks; check++)
        for (is_bf16 = 0; is_bf16 < 2; is_bf16++) {
          random_state = (uint64_t)seed << 8 | check << 1 | is_bf16;
          printf("%s 1 %ld: %s ", variants[n].name, seed, is_bf16 ? "bfloat16" : "float32");
          checks[check](&variants[n].functions[is_bf16]);
        }
    printf("%s: %ld cases of each operator and type agree; largest errors: %.2g of the tolerance in float32, %.2g in bfloat16\n",
           variants[n].name, cases, worst[0], worst[1]);
  }
  if (!variants_run) printf("%s: not linked, or the processor does not have it\n", wanted);
  return variants_run ? 0 : 2;
}
