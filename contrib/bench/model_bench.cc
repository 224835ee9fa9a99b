// model_bench [--steps N] [--samples N] [--bf16] [--recompute] [--threads N]: one rank's forward, backward
// and optimizer step of the benchmark LLaVA (CLIP 6×192 at 224/16, Llama 8×256, vocabulary 8192) on made-up
// captions of 8–48 tokens; prints unpadded positions per second of CPU time, image positions included.
// contrib/bench/peer_model.py runs the same with transformers.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/random.h"
#include "exec/adamw.h"
#include "memory/flat_buffer.h"
#include "model/training_graph.h"

namespace {

using namespace mso;

// Time of this process: what a machine shared with others leaves meaningful. Equal to wall time with one
// thread on an idle machine.
struct Clock {
  static double now() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
};

constexpr const char* kConfig =
    R"({"model_type": "llava", "image_token_index": 8191, "vision_feature_layer": -2,
  "vision_config": {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 4,
                    "image_size": 224, "patch_size": 16},
  "text_config": {"vocab_size": 8192, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 8,
                  "num_attention_heads": 8, "num_key_value_heads": 8}})";

// <image positions> prompt-free caption, as data.template "<image>{caption}" makes it.
MicroBatch make_batch(int samples, uint64_t seed) {
  MicroBatch b;
  b.sample_starts.push_back(0);
  HostTensor pixels = HostTensor::make(DType::kF32, {samples, 3, 224, 224});
  for (int64_t i = 0; i < pixels.count(); ++i)
    pixels.data<float>()[i] = static_cast<float>(random_uniform({seed, 1, static_cast<uint64_t>(i)}) * 4 - 2);
  for (int s = 0; s < samples; ++s) {
    const int words = 8 + static_cast<int>(random_bits({seed, 2, static_cast<uint64_t>(s)}) % 41);
    std::vector<int64_t> row{1};
    row.insert(row.end(), 196, 8191);
    for (int w = 0; w < words; ++w)
      row.push_back(3 +
                    static_cast<int64_t>(
                        random_bits({seed, 3, static_cast<uint64_t>(s), static_cast<uint64_t>(w)}) % 8000));
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] == 8191) b.media_positions["image"].push_back(b.size());
      b.tokens.push_back(row[i]);
      b.labels.push_back(i + 1 < row.size() && row[i + 1] != 8191 ? row[i + 1] : kIgnoreLabel);
      b.positions.push_back(static_cast<int64_t>(i));
    }
    b.sample_starts.push_back(b.size());
    b.sample_ids.push_back(static_cast<uint64_t>(s));
  }
  b.media["pixel_values"] = std::move(pixels);
  return b;
}

}  // namespace

int main(int argc, char** argv) {
  int steps = 10, samples = 8, threads = 1;
  ModelOptions options;
  options.config_json = kConfig;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--bf16"))
      options.compute = ComputeType::kBF16;
    else if (!std::strcmp(argv[i], "--recompute"))
      options.recompute = true;
    else if (i + 1 < argc && !std::strcmp(argv[i], "--steps"))
      steps = std::atoi(argv[++i]);
    else if (i + 1 < argc && !std::strcmp(argv[i], "--samples"))
      samples = std::atoi(argv[++i]);
    else if (i + 1 < argc && !std::strcmp(argv[i], "--threads"))
      threads = std::atoi(argv[++i]);
    else
      return std::fprintf(
                 stderr,
                 "usage: model_bench [--steps N] [--samples N] [--threads N] [--bf16] [--recompute]\n"),
             2;
  }
  at::set_num_threads(threads);
  auto graph = build_graph(options);
  const size_t n = graph->layout().size;
  FlatBuffer<float> first(n), second(n);
  std::printf("%zu trainable elements, %d samples a step, %d thread(s)\n", n, samples, threads);

  std::vector<double> totals;
  double forward_backward_s = 0, optimizer_s = 0, evaluate_s = 0;
  int64_t positions = 0;
  for (int step = 0; step < steps + 2; ++step) {
    const MicroBatch batch = make_batch(samples, static_cast<uint64_t>(step));
    auto t0 = Clock::now();
    std::memset(graph->gradients(), 0, n * sizeof(float));
    const LossSums sums = graph->forward_backward(batch, nullptr);
    auto t1 = Clock::now();
    AdamWParameters p;
    p.lr = 3e-4;
    p.step = step + 1;
    p.gradient_scale = 1.0 / static_cast<double>(sums.labels);
    adamw_step(graph->weights(), first.data(), second.data(), graph->gradients(), n, p);
    graph->weights_changed(0, n);
    auto t2 = Clock::now();
    if (step < 2) continue;  // warm-up
    forward_backward_s += (t1 - t0);
    optimizer_s += (t2 - t1);
    totals.push_back((t2 - t0) / static_cast<double>(batch.size()));
    positions += batch.size();
    if (step == steps + 1) {
      t0 = Clock::now();
      graph->evaluate(batch);
      evaluate_s = Clock::now() - t0;
      std::printf("loss %.4f\n", sums.loss / static_cast<double>(sums.labels));
    }
  }
  std::sort(totals.begin(), totals.end());
  std::printf("forward+backward %.1f ms, optimizer %.1f ms a step; forward alone %.1f ms\n",
              forward_backward_s / steps * 1e3, optimizer_s / steps * 1e3, evaluate_s * 1e3);
  std::printf("positions/s: %.0f mean, %.0f median\n",
              static_cast<double>(positions) / (forward_backward_s + optimizer_s),
              1.0 / totals[totals.size() / 2]);
  return 0;
}
