// One LSTM or GRU layer of oneDNN, timed for benchmarks/layer_passes.py.
//
//   onednn_layer CELL DTYPE PASS T B D U FOLDER
//
// CELL: lstm or gru (linear before reset). DTYPE: float32 or bfloat16. PASS: forward or
// both. FOLDER contains x [T, B, D], w_x [D, G, U], w_h [U, G, U] and bias [gates, U] as
// float32. A step packs the weights, because training changes them in every step.
// Prints {"loss": sum of the outputs}; then, for each line with a count, the wall and CPU
// seconds of so many steps.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <unordered_map>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"

using namespace dnnl;
using tag = memory::format_tag;
using type = memory::data_type;

static engine cpu(engine::kind::cpu, 0);
static stream queue(cpu);

static memory read_floats(const std::string &path, memory::dims dims, tag layout) {
  memory result({dims, type::f32, layout}, cpu);
  size_t bytes = result.get_desc().get_size();
  std::ifstream file(path, std::ios::binary);
  if (!file.read(static_cast<char *>(result.get_data_handle()), bytes)) {
    std::fprintf(stderr, "error: %s has fewer than %zu bytes\n", path.c_str(), bytes);
    std::exit(1);
  }
  return result;
}

static memory converted(memory from, const memory::desc &desc) {
  memory to(desc, cpu);
  reorder(from, to).execute(queue, from, to);
  return to;
}

static memory filled(const memory::desc &desc, float value) {
  memory plain({desc.get_dims(), type::f32, memory::dims(desc.get_strides())}, cpu);
  float *data = static_cast<float *>(plain.get_data_handle());
  for (size_t i = 0; i < plain.get_desc().get_size() / sizeof(float); i++) data[i] = value;
  return converted(plain, desc);
}

using Arguments = std::unordered_map<int, memory>;

// Adds a memory of zeros for each output that an argument number names.
static void add(Arguments &arguments, int number, const memory::desc &desc) {
  if (!desc.is_zero()) arguments[number] = memory(desc, cpu);
}

template <typename Forward, typename Backward>
struct Layer {
  typename Forward::primitive_desc forward_desc;
  typename Backward::primitive_desc backward_desc;
  memory w_x, w_h;  // as the user stores them
  Arguments forward_arguments, backward_arguments;
  bool has_backward;

  void pack(Arguments &arguments, int number, memory &weights, const memory::desc &desc) {
    memory packed = arguments.count(number) ? arguments[number] : memory(desc, cpu);
    reorder(weights, packed).execute(queue, weights, packed);
    arguments[number] = packed;
  }

  void run() {
    pack(forward_arguments, DNNL_ARG_WEIGHTS_LAYER, w_x, forward_desc.weights_layer_desc());
    pack(forward_arguments, DNNL_ARG_WEIGHTS_ITER, w_h, forward_desc.weights_iter_desc());
    Forward(forward_desc).execute(queue, forward_arguments);
    if (has_backward) {
      pack(backward_arguments, DNNL_ARG_WEIGHTS_LAYER, w_x, backward_desc.weights_layer_desc());
      pack(backward_arguments, DNNL_ARG_WEIGHTS_ITER, w_h, backward_desc.weights_iter_desc());
      for (int number : {DNNL_ARG_DIFF_WEIGHTS_LAYER, DNNL_ARG_DIFF_WEIGHTS_ITER, DNNL_ARG_DIFF_BIAS}) {
        memory &sum = backward_arguments[number];  // oneDNN adds to these
        std::memset(sum.get_data_handle(), 0, sum.get_desc().get_size());
      }
      Backward(backward_desc).execute(queue, backward_arguments);
    }
    queue.wait();
  }
};

template <typename LayerType>
static int serve(LayerType &layer) {
  layer.run();
  memory output = layer.forward_arguments[DNNL_ARG_DST_LAYER];
  memory::dims dims = output.get_desc().get_dims();
  memory plain = converted(output, {dims, type::f32, tag::tnc});
  queue.wait();
  const float *values = static_cast<const float *>(plain.get_data_handle());
  double sum = 0;
  for (long i = 0; i < dims[0] * dims[1] * dims[2]; i++) sum += values[i];
  std::printf("{\"loss\": %.9g}\n", sum);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::string wall, cpu_times;
    for (int i = std::stoi(line); i > 0; i--) {
      auto start = std::chrono::steady_clock::now();
      std::clock_t cpu_start = std::clock();
      layer.run();
      double cpu_s = double(std::clock() - cpu_start) / CLOCKS_PER_SEC;
      std::chrono::duration<double> wall_s = std::chrono::steady_clock::now() - start;
      const char *separator = i > 1 ? ", " : "";
      wall += std::to_string(wall_s.count()) + separator;
      cpu_times += std::to_string(cpu_s) + separator;
    }
    std::printf("{\"wall_s\": [%s], \"cpu_s\": [%s]}\n", wall.c_str(), cpu_times.c_str());
    std::fflush(stdout);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 9) {
    std::fprintf(stderr, "error: expected CELL DTYPE PASS T B D U FOLDER\n");
    return 2;
  }
  std::string cell = argv[1], dtype = argv[2], pass = argv[3], folder = argv[8];
  long T = std::stol(argv[4]), B = std::stol(argv[5]), D = std::stol(argv[6]), U = std::stol(argv[7]);
  long gates = cell == "lstm" ? 4 : 3, biases = 4;
  type t = dtype == "bfloat16" ? type::bf16 : type::f32;
  bool both = pass == "both";
  auto any = [&](memory::dims dims) { return memory::desc(dims, t, tag::any); };
  memory::desc x({T, B, D}, t, tag::tnc), h({1, 1, B, U}, t, tag::ldnc), c({1, 1, B, U}, type::f32, tag::ldnc);
  memory::desc y({T, B, U}, t, tag::tnc), bias({1, 1, cell == "lstm" ? gates : biases, U}, type::f32, tag::ldgo);
  memory::dims w_x_dims{1, 1, D, gates, U}, w_h_dims{1, 1, U, gates, U};
  auto direction = rnn_direction::unidirectional_left2right;

  auto prepare = [&](auto &layer) {
    layer.has_backward = both;
    layer.w_x = read_floats(folder + "/w_x", w_x_dims, tag::ldigo);
    layer.w_h = read_floats(folder + "/w_h", w_h_dims, tag::ldigo);
    Arguments &f = layer.forward_arguments;
    f[DNNL_ARG_SRC_LAYER] = converted(read_floats(folder + "/x", {T, B, D}, tag::tnc), x);
    f[DNNL_ARG_SRC_ITER] = filled(h, 0);
    f[DNNL_ARG_BIAS] = read_floats(folder + "/bias", bias.get_dims(), tag::ldgo);
    f[DNNL_ARG_DST_LAYER] = memory(y, cpu);
    f[DNNL_ARG_DST_ITER] = memory(h, cpu);
    f[DNNL_ARG_WORKSPACE] = memory(layer.forward_desc.workspace_desc(), cpu);
    Arguments &b = layer.backward_arguments;
    b = f;
    auto &d = layer.backward_desc;
    b[DNNL_ARG_DIFF_DST_LAYER] = filled(d.diff_dst_layer_desc(), 0.01f);
    b[DNNL_ARG_DIFF_DST_ITER] = filled(d.diff_dst_iter_desc(), 0);
    add(b, DNNL_ARG_DIFF_SRC_LAYER, d.diff_src_layer_desc());
    add(b, DNNL_ARG_DIFF_SRC_ITER, d.diff_src_iter_desc());
    add(b, DNNL_ARG_DIFF_WEIGHTS_LAYER, d.diff_weights_layer_desc());
    add(b, DNNL_ARG_DIFF_WEIGHTS_ITER, d.diff_weights_iter_desc());
    add(b, DNNL_ARG_DIFF_BIAS, d.diff_bias_desc());
  };

  auto floats = [&](memory::dims dims, tag layout) { return memory::desc(dims, type::f32, layout); };
  memory::desc d_x = floats({T, B, D}, tag::tnc), d_h = floats({1, 1, B, U}, tag::ldnc);
  memory::desc d_y = floats({T, B, U}, tag::tnc);
  memory::desc d_w_x(w_x_dims, type::f32, tag::any), d_w_h(w_h_dims, type::f32, tag::any);
  if (cell == "lstm") {
    Layer<lstm_forward, lstm_backward> layer;
    layer.forward_desc = {cpu, prop_kind::forward_training, direction, x, h, c, any(w_x_dims), any(w_h_dims), bias, y, h, c};
    layer.backward_desc = {cpu, prop_kind::backward, direction, x, h, c, any(w_x_dims), any(w_h_dims), bias, y, h, c,
                           d_x, d_h, c, d_w_x, d_w_h, bias, d_y, d_h, c, layer.forward_desc};
    layer.forward_arguments[DNNL_ARG_SRC_ITER_C] = filled(c, 0);
    layer.forward_arguments[DNNL_ARG_DST_ITER_C] = memory(c, cpu);
    prepare(layer);
    layer.backward_arguments[DNNL_ARG_DIFF_DST_ITER_C] = filled(c, 0);
    layer.backward_arguments[DNNL_ARG_DIFF_SRC_ITER_C] = memory(c, cpu);
    return serve(layer);
  }
  Layer<lbr_gru_forward, lbr_gru_backward> layer;
  layer.forward_desc = {cpu, prop_kind::forward_training, direction, x, h, any(w_x_dims), any(w_h_dims), bias, y, h};
  layer.backward_desc = {cpu, prop_kind::backward, direction, x, h, any(w_x_dims), any(w_h_dims), bias, y, h,
                         d_x, d_h, d_w_x, d_w_h, bias, d_y, d_h, layer.forward_desc};
  prepare(layer);
  return serve(layer);
}
