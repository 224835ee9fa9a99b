// The LLaVA graph as a whole: equal to transformers on a small case, and to itself whatever the packing,
// freezing, recomputation and accumulation.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/random.h"
#include "base/safetensors.h"
#include "model/hf_names.h"
#include "model/training_graph.h"

namespace mso {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

fs::path tiny_case() {
  const char* directory = std::getenv("MSO_SRCDIR");
  if (!directory) directory = std::getenv("srcdir");
  return fs::path(directory ? directory : ".") / "tests/reference/cases/llava_tiny";
}

constexpr int64_t kImage = 31, kPatches = 4;

ModelOptions small(const Json& changes = Json::object()) {
  Json json = {{"model_type", "llava"},
               {"image_token_index", kImage},
               {"vision_config",
                {{"hidden_size", 12},
                 {"intermediate_size", 20},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 2},
                 {"image_size", 8},
                 {"patch_size", 4}}},
               {"text_config",
                {{"vocab_size", 32},
                 {"hidden_size", 16},
                 {"intermediate_size", 24},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2}}}};
  json.merge_patch(changes);
  ModelOptions options;
  options.config_json = json.dump();
  options.init_std = 0.2;
  options.seed = 3;
  return options;
}

// Appends a sample: `text` tokens with `images` pictures in front.
void append(MicroBatch& b, int text, int images, uint64_t id) {
  if (b.sample_starts.empty()) b.sample_starts.push_back(0);
  std::vector<int64_t> row(static_cast<size_t>(images * kPatches), kImage);
  for (int i = 0; i < text; ++i)
    row.push_back(static_cast<int64_t>(random_bits({id, static_cast<uint64_t>(i)}) % 30));
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] == kImage) b.media_positions["image"].push_back(b.size());
    b.tokens.push_back(row[i]);
    b.labels.push_back(i + 1 < row.size() && row[i + 1] != kImage ? row[i + 1] : kIgnoreLabel);
    b.positions.push_back(static_cast<int64_t>(i));
  }
  b.sample_starts.push_back(b.size());
  b.sample_ids.push_back(id);
  if (images == 0) return;
  HostTensor& pixels = b.media["pixel_values"];
  const int64_t before = pixels.shape.empty() ? 0 : pixels.shape[0];
  HostTensor grown = HostTensor::make(DType::kF32, {before + images, 3, 8, 8});
  if (before) std::memcpy(grown.bytes.data(), pixels.bytes.data(), pixels.bytes.size());
  for (int64_t i = before * 192; i < grown.count(); ++i)
    grown.data<float>()[i] =
        static_cast<float>(random_uniform({id, 99, static_cast<uint64_t>(i - before * 192)}) * 2 - 1);
  pixels = std::move(grown);
}

MicroBatch mixed() {
  MicroBatch b;
  append(b, 7, 1, 1);
  append(b, 12, 0, 2);
  append(b, 5, 2, 3);
  append(b, 7, 1, 4);
  return b;
}

struct Gradients {
  LossSums sums;
  std::vector<float> values;
  std::vector<size_t> order;
};
Gradients run(TrainingGraph& graph, const MicroBatch& batch) {
  std::fill_n(graph.gradients(), graph.layout().size, 0.0f);
  Gradients g;
  g.sums = graph.forward_backward(batch, [&](size_t i) { g.order.push_back(i); });
  g.values.assign(graph.gradients(), graph.gradients() + graph.layout().size);
  return g;
}
void expect_each_once(const Gradients& g, const TrainingGraph& graph) {
  std::vector<size_t> sorted = g.order;
  std::ranges::sort(sorted);
  ASSERT_EQ(sorted.size(), graph.layout().tensors.size());
  for (size_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i);
}
// Largest difference over the largest value.
double error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, most = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(double{a[i]} - b[i]));
    most = std::max(most, std::abs(double{b[i]}));
  }
  return difference / most;
}
std::map<std::string, std::vector<float>> by_name(const TrainingGraph& graph, const Gradients& g) {
  std::map<std::string, std::vector<float>> result;
  for (const FlatTensor& t : graph.layout().tensors)
    result[t.name] = {&g.values[t.offset], &g.values[t.offset] + t.count};
  return result;
}

TEST(LlavaGraph, EqualsTransformersOnTheTinyCase) {
  ModelOptions options;
  options.path = tiny_case();
  auto graph = build_graph(options);
  const SafetensorsFolder inputs(tiny_case() / "inputs.safetensors"),
      expected(tiny_case() / "expected.safetensors");
  const HostTensor ids = inputs.read("input_ids"), mask = inputs.read("attention_mask"),
                   labels = inputs.read("labels");
  const int64_t width = ids.shape[1];
  MicroBatch b;
  std::vector<int64_t> origin;
  b.sample_starts.push_back(0);
  for (int64_t row = 0; row < ids.shape[0]; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = row * width + i;
      if (!mask.data<int64_t>()[at]) continue;
      if (ids.data<int64_t>()[at] == 49) b.media_positions["image"].push_back(b.size());
      b.tokens.push_back(ids.data<int64_t>()[at]);
      b.labels.push_back(i + 1 < width ? labels.data<int64_t>()[at + 1] : kIgnoreLabel);
      b.positions.push_back(i);
      origin.push_back(at);
    }
    b.sample_starts.push_back(b.size());
    b.sample_ids.push_back(static_cast<uint64_t>(row));
  }
  b.media["pixel_values"] = inputs.read("pixel_values");

  const HostTensor right = expected.read("logits");
  const at::Tensor logits = graph->logits(b);
  std::vector<float> ours(logits.const_data_ptr<float>(), logits.const_data_ptr<float>() + logits.numel()),
      theirs;
  for (int64_t at : origin)
    theirs.insert(theirs.end(), right.data<float>() + at * 50, right.data<float>() + (at + 1) * 50);
  EXPECT_LT(error(ours, theirs), 1e-5);

  const Gradients g = run(*graph, b);
  expect_each_once(g, *graph);
  EXPECT_NEAR(g.sums.loss / static_cast<double>(g.sums.labels), *expected.read("loss").data<float>(), 1e-5);
  size_t compared = 0;
  const auto named = by_name(*graph, g);
  for (const std::string& name : expected.names()) {
    if (!name.starts_with("grad.")) continue;
    ASSERT_TRUE(named.count(logical_name(name.substr(5)))) << name;
    const HostTensor tensor = expected.read(name);
    std::vector<float> reference(tensor.data<float>(), tensor.data<float>() + tensor.count()),
        scaled = named.at(logical_name(name.substr(5)));
    for (float& v : scaled) v /= static_cast<float>(g.sums.labels);
    double most = 0, difference = 0;
    for (size_t i = 0; i < scaled.size(); ++i)
      most = std::max(most, std::abs(double{reference[i]})),
      difference = std::max(difference, std::abs(double{scaled[i]} - reference[i]));
    EXPECT_LT(difference / std::max(most, 5e-5), 1e-5) << name;
    ++compared;
  }
  EXPECT_EQ(compared, graph->layout().tensors.size());
}

TEST(LlavaGraph, PackedEqualsOneByOne) {
  auto graph = build_graph(small());
  const Gradients packed = run(*graph, mixed());
  expect_each_once(packed, *graph);
  std::vector<MicroBatch> single(4);
  append(single[0], 7, 1, 1);
  append(single[1], 12, 0, 2);
  append(single[2], 5, 2, 3);
  append(single[3], 7, 1, 4);
  std::fill_n(graph->gradients(), graph->layout().size, 0.0f);
  double loss = 0;
  int64_t labels = 0;
  for (const MicroBatch& b : single) {
    const LossSums sums = graph->forward_backward(b, nullptr);
    loss += sums.loss, labels += sums.labels;
  }
  EXPECT_NEAR(loss, packed.sums.loss, 1e-5 * loss);
  EXPECT_EQ(labels, packed.sums.labels);
  EXPECT_LT(error({graph->gradients(), graph->gradients() + graph->layout().size}, packed.values), 1e-5);
  // The same micro-batch twice adds twice: gradients accumulate.
  graph->forward_backward(mixed(), nullptr);
  std::vector<float> twice = packed.values;
  for (float& v : twice) v *= 2;
  EXPECT_LT(error({graph->gradients(), graph->gradients() + graph->layout().size}, twice), 1e-5);
}

TEST(LlavaGraph, SameBitsEveryTime) {
  auto graph = build_graph(small());
  const Gradients a = run(*graph, mixed()), b = run(*graph, mixed());
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.sums.loss, b.sums.loss);
  EXPECT_EQ(a.order, b.order);
  EXPECT_EQ(graph->evaluate(mixed()).loss, a.sums.loss);
}

TEST(LlavaGraph, GradientsComeAsBackwardPasses) {
  auto graph = build_graph(small());
  const Gradients g = run(*graph, mixed());
  auto rank_of = [&](const std::string& name) {
    const auto& tensors = graph->layout().tensors;
    const size_t index =
        static_cast<size_t>(std::ranges::find(tensors, name, &FlatTensor::name) - tensors.begin());
    return std::ranges::find(g.order, index) - g.order.begin();
  };
  EXPECT_EQ(rank_of("language_model.lm_head.weight"), 0);
  EXPECT_LT(rank_of("language_model.model.layers.2.mlp.down_proj.weight"),
            rank_of("language_model.model.layers.1.mlp.down_proj.weight"));
  EXPECT_LT(rank_of("language_model.model.embed_tokens.weight"),
            rank_of("multi_modal_projector.linear_2.weight"));
  EXPECT_LT(rank_of("multi_modal_projector.linear_1.weight"),
            rank_of("vision_tower.vision_model.encoder.layers.1.mlp.fc2.weight"));
  EXPECT_EQ(rank_of("vision_tower.vision_model.embeddings.class_embedding"),
            static_cast<long>(g.order.size()) - 1);
}

TEST(LlavaGraph, TextOnlyReportsEveryTensor) {
  auto graph = build_graph(small());
  MicroBatch b;
  append(b, 9, 0, 1);
  const Gradients g = run(*graph, b);
  expect_each_once(g, *graph);
  EXPECT_GT(g.sums.loss, 0);
  for (const auto& [name, values] : by_name(*graph, g)) {
    const bool zero = std::ranges::all_of(values, [](float v) { return v == 0; });
    EXPECT_EQ(zero, !name.starts_with("language_model")) << name;
  }
}

TEST(LlavaGraph, NothingToLearnReportsEveryTensor) {
  auto graph = build_graph(small());
  MicroBatch empty;
  empty.sample_starts = {0};
  for (MicroBatch b : {mixed(), empty}) {
    std::ranges::fill(b.labels, kIgnoreLabel);
    const Gradients g = run(*graph, b);
    expect_each_once(g, *graph);
    EXPECT_EQ(g.sums.labels, 0);
    EXPECT_EQ(g.sums.loss, 0);
    EXPECT_TRUE(std::ranges::all_of(g.values, [](float v) { return v == 0; }));
    EXPECT_EQ(graph->evaluate(b).labels, 0);
  }
}

TEST(LlavaGraph, FrozenPartsLeaveOtherGradientsAlone) {
  auto all = build_graph(small());
  const auto reference = by_name(*all, run(*all, mixed()));
  for (const std::vector<std::string>& freeze :
       {std::vector<std::string>{"vision_encoder"},
        {"vision_encoder", "llm_decoder"},
        {"llm_decoder"},
        {"projector"},
        {"vision_encoder", "projector"},
        {"*embeddings*", "*pre_layrnorm*", "*vision_model.encoder.layers.0.*"},
        {"*embed_tokens*", "*language_model.model.layers.0.*"},
        {"vision_encoder", "projector", "*embed_tokens*", "*language_model.model.layers.0.*",
         "*language_model.model.layers.1.*"},
        {"*.q_proj.weight"},
        {"*.k_proj.bias", "*norm*"},
        {"*lm_head*"},
        {"*up_proj*"}}) {
    for (bool recompute : {false, true}) {
      ModelOptions options = small();
      options.recompute = recompute;
      options.freeze = freeze;
      auto graph = build_graph(options);
      const Gradients g = run(*graph, mixed());
      expect_each_once(g, *graph);
      for (const auto& [name, values] : by_name(*graph, g)) {
        // Gradients of key biases are zero but for rounding.
        if (name.ends_with("k_proj.bias")) continue;
        EXPECT_LT(error(values, reference.at(name)), 2e-5) << name << " with " << freeze[0] << " frozen";
      }
      EXPECT_LT(graph->layout().tensors.size(), all->layout().tensors.size());
    }
  }
}

TEST(LlavaGraph, StagesSayWhatIsTrained) {
  ModelOptions options = small();
  options.freeze = {"vision_encoder", "llm_decoder"};
  auto graph = build_graph(options);
  ASSERT_EQ(graph->stages().size(), 4u);
  EXPECT_EQ(graph->stages()[0].name, "vision_encoder");
  EXPECT_FALSE(graph->stages()[0].trainable);
  EXPECT_TRUE(graph->stages()[1].trainable);
  EXPECT_FALSE(graph->stages()[2].trainable);
  EXPECT_EQ(graph->stages()[1].parameters, 12 * 16 + 16 + 16 * 16 + 16);
  EXPECT_TRUE(graph->stages()[0].needs_media);
}

TEST(LlavaGraph, RecomputationGivesTheSameBits) {
  for (ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    ModelOptions options = small({{"vision_feature_layer", {1, 3}}});
    options.compute = compute;
    auto plain = build_graph(options);
    options.recompute = true;
    auto again = build_graph(options);
    EXPECT_EQ(run(*plain, mixed()).values, run(*again, mixed()).values);
  }
}

TEST(LlavaGraph, BFloat16IsClose) {
  ModelOptions options = small();
  auto full = build_graph(options);
  options.compute = ComputeType::kBF16;
  auto half = build_graph(options);
  const Gradients a = run(*full, mixed()), b = run(*half, mixed());
  EXPECT_NEAR(b.sums.loss, a.sums.loss, 0.02 * a.sums.loss);
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.values.size(); ++i)
    dot += double{a.values[i]} * b.values[i], aa += double{a.values[i]} * a.values[i],
        bb += double{b.values[i]} * b.values[i];
  EXPECT_GT(dot / std::sqrt(aa * bb), 0.99);
  // The copy follows the master weights only when told, and only in the range told.
  const double before = half->evaluate(mixed()).loss;
  std::fill_n(half->weights(), half->layout().size, 0.0f);
  EXPECT_EQ(half->evaluate(mixed()).loss, before);
  half->weights_changed(0, half->layout().size);
  EXPECT_NEAR(half->evaluate(mixed()).loss, static_cast<double>(a.sums.labels) * std::log(32.0), 1e-3);
}

TEST(LlavaGraph, GradientIsTheSlopeOfTheLoss) {
  auto graph =
      build_graph(small({{"text_config", {{"tie_word_embeddings", true}, {"attention_bias", true}}}}));
  const Gradients g = run(*graph, mixed());
  double norm = 0;
  for (float v : g.values) norm += double{v} * v;
  const std::vector<float> start(graph->weights(), graph->weights() + graph->layout().size);
  double losses[2];
  const double step = 1e-3 / std::sqrt(norm);
  for (int side = 0; side < 2; ++side) {
    for (size_t i = 0; i < start.size(); ++i)
      graph->weights()[i] = static_cast<float>(start[i] + (side ? step : -step) * g.values[i]);
    losses[side] = graph->evaluate(mixed()).loss;
  }
  EXPECT_NEAR((losses[1] - losses[0]) / (2 * step) / norm, 1, 5e-3);
}

TEST(LlavaGraph, RefusesBatchesThatDoNotFit) {
  auto graph = build_graph(small());
  auto refused = [&](auto change) {
    MicroBatch b = mixed();
    change(b);
    EXPECT_THROW(graph->forward_backward(b, nullptr), Error);
    EXPECT_THROW(graph->evaluate(b), Error);
  };
  refused([](MicroBatch& b) { b.tokens[2] = 32; });
  refused([](MicroBatch& b) { b.tokens[2] = -1; });
  refused([](MicroBatch& b) { b.labels[8] = 32; });
  refused([](MicroBatch& b) { b.labels[8] = -5; });
  refused([](MicroBatch& b) { b.labels.pop_back(); });
  refused([](MicroBatch& b) { b.positions.pop_back(); });
  refused([](MicroBatch& b) { b.sample_starts.clear(); });
  refused([](MicroBatch& b) { b.sample_starts.back() -= 1; });
  refused([](MicroBatch& b) { std::swap(b.sample_starts[1], b.sample_starts[2]); });
  refused([](MicroBatch& b) { b.media_positions["image"].pop_back(); });
  refused([](MicroBatch& b) { b.media_positions["image"][0] = b.size(); });
  refused([](MicroBatch& b) { b.media.clear(); });
  refused([](MicroBatch& b) { b.media["pixel_values"].shape[2] = 4; });
  refused([](MicroBatch& b) { b.media["pixel_values"].dtype = DType::kI32; });
}

TEST(LlavaGraph, WeightsCanBeLeftToACheckpoint) {
  ModelOptions options = small();
  options.values = false;
  auto graph = build_graph(options);
  EXPECT_TRUE(
      std::all_of(graph->weights(), graph->weights() + graph->layout().size, [](float v) { return v == 0; }));
}

}  // namespace
}  // namespace mso
