// LLaVA with video and sound: equal to a composition of transformers' modules on a small case, and to itself whatever
// modality is absent, frozen or recomputed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

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
  return fs::path(directory ? directory : ".") / "tests/reference/cases/omni_tiny";
}

// Positions: an image 4, a frame 1, a sound 3.
constexpr int64_t kImage = 31, kVideo = 30, kAudio = 29, kMel = 5, kMelFrames = 12;

Json small_config() {
  return {{"model_type", "llava"},
          {"image_token_index", kImage},
          {"video_token_index", kVideo},
          {"audio_token_index", kAudio},
          {"vision_config",
           {{"hidden_size", 12},
            {"intermediate_size", 20},
            {"num_hidden_layers", 3},
            {"num_attention_heads", 2},
            {"image_size", 8},
            {"patch_size", 4}}},
          {"audio_config",
           {{"num_mel_bins", kMel},
            {"d_model", 12},
            {"encoder_layers", 2},
            {"encoder_attention_heads", 2},
            {"encoder_ffn_dim", 20},
            {"initializer_range", 0.2},
            {"max_source_positions", kMelFrames / 2}}},
          {"text_config",
           {{"vocab_size", 32},
            {"hidden_size", 16},
            {"intermediate_size", 24},
            {"num_hidden_layers", 3},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2}}}};
}

ModelOptions options_of(const Json& json) {
  ModelOptions options;
  options.config_json = json.dump();
  options.init_std = 0.2;
  options.seed = 3;
  return options;
}
ModelOptions small(const Json& changes = Json::object()) {
  Json json = small_config();
  json.merge_patch(changes);
  return options_of(json);
}

void add_media(MicroBatch& b, const char* name, const std::vector<int64_t>& item, int count, uint64_t id) {
  if (count == 0) return;
  HostTensor& tensor = b.media[name];
  std::vector<int64_t> shape = {count + (tensor.shape.empty() ? 0 : tensor.shape[0])};
  shape.insert(shape.end(), item.begin(), item.end());
  HostTensor grown = HostTensor::make(DType::kF32, shape);
  if (!tensor.shape.empty()) std::memcpy(grown.bytes.data(), tensor.bytes.data(), tensor.bytes.size());
  const int64_t before = tensor.shape.empty() ? 0 : tensor.count();
  for (int64_t i = before; i < grown.count(); ++i)
    grown.data<float>()[i] = static_cast<float>(random_uniform({id, 99, static_cast<uint64_t>(i - before)}) * 2 - 1);
  tensor = std::move(grown);
}

// Appends a sample: its media, then `text` tokens.
void append(MicroBatch& b, int images, int frames, int sounds, int text, uint64_t id) {
  if (b.sample_starts.empty()) b.sample_starts.push_back(0);
  std::vector<int64_t> row(static_cast<size_t>(images) * 4, kImage);
  row.insert(row.end(), static_cast<size_t>(frames), kVideo);
  row.insert(row.end(), static_cast<size_t>(sounds) * 3, kAudio);
  for (int i = 0; i < text; ++i)
    row.push_back(static_cast<int64_t>(random_bits({id, static_cast<uint64_t>(i)}) % 29));
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] == kImage) b.media_positions["image"].push_back(b.size());
    if (row[i] == kVideo) b.media_positions["video"].push_back(b.size());
    if (row[i] == kAudio) b.media_positions["audio"].push_back(b.size());
    b.tokens.push_back(row[i]);
    b.labels.push_back(i + 1 < row.size() && row[i + 1] < kAudio ? row[i + 1] : kIgnoreLabel);
    b.positions.push_back(static_cast<int64_t>(i));
  }
  b.sample_starts.push_back(b.size());
  b.sample_ids.push_back(id);
  add_media(b, "pixel_values", {3, 8, 8}, images, id);
  add_media(b, "pixel_values_videos", {3, 8, 8}, frames, id + 1000);
  add_media(b, "input_features", {kMel, kMelFrames}, sounds, id + 2000);
}

const std::vector<std::array<int, 4>> kSamples = {{1, 0, 0, 7}, {0, 0, 0, 12}, {0, 3, 0, 5}, {0, 0, 2, 6}, {1, 2, 1, 8}};

MicroBatch mixed() {
  MicroBatch b;
  for (size_t i = 0; i < kSamples.size(); ++i) {
    const auto [images, frames, sounds, text] = kSamples[i];
    append(b, images, frames, sounds, text, i + 1);
  }
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

TEST(OmniGraph, EqualsTheCompositionOfTransformersModules) {
  ModelOptions options;
  options.path = tiny_case();
  const LlavaConfig config = model_config(options);
  auto graph = build_graph(options);
  const SafetensorsFolder inputs(tiny_case() / "inputs.safetensors"), expected(tiny_case() / "expected.safetensors");
  const HostTensor ids = inputs.read("input_ids"), mask = inputs.read("attention_mask"), labels = inputs.read("labels");
  const int64_t width = ids.shape[1];
  MicroBatch b;
  b.sample_starts.push_back(0);
  for (int64_t row = 0; row < ids.shape[0]; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = row * width + i, token = ids.data<int64_t>()[at];
      if (!mask.data<int64_t>()[at]) continue;
      if (token == config.image_token_index) b.media_positions["image"].push_back(b.size());
      if (token == config.video_token_index) b.media_positions["video"].push_back(b.size());
      if (token == config.audio_token_index) b.media_positions["audio"].push_back(b.size());
      b.tokens.push_back(token);
      b.labels.push_back(i + 1 < width ? labels.data<int64_t>()[at + 1] : kIgnoreLabel);
      b.positions.push_back(i);
    }
    b.sample_starts.push_back(b.size());
    b.sample_ids.push_back(static_cast<uint64_t>(row));
  }
  for (const char* name : {"pixel_values", "pixel_values_videos", "input_features"}) b.media[name] = inputs.read(name);

  const Gradients g = run(*graph, b);
  expect_each_once(g, *graph);
  EXPECT_NEAR(g.sums.loss / static_cast<double>(g.sums.labels), *expected.read("loss").data<float>(), 1e-5);
  const auto named = by_name(*graph, g);
  double case_most = 0;
  for (const std::string& name : expected.names()) {
    if (!name.starts_with("grad.")) continue;
    const HostTensor tensor = expected.read(name);
    for (int64_t i = 0; i < tensor.count(); ++i)
      case_most = std::max(case_most, std::abs(double{tensor.data<float>()[i]}));
  }
  size_t compared = 0;
  for (const std::string& name : expected.names()) {
    if (!name.starts_with("grad.")) continue;
    ASSERT_TRUE(named.count(logical_name(name.substr(5)))) << name;
    const HostTensor tensor = expected.read(name);
    const std::vector<float>& ours = named.at(logical_name(name.substr(5)));
    double most = 0, difference = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      const double right = tensor.data<float>()[i];
      most = std::max(most, std::abs(right));
      difference = std::max(difference, std::abs(ours[i] / static_cast<double>(g.sums.labels) - right));
    }
    EXPECT_LE(difference / std::max(most, 1e-4 * case_most), 1e-5) << name;
    ++compared;
  }
  EXPECT_EQ(compared, graph->layout().tensors.size());
}

TEST(OmniGraph, HasItsStagesInTheOrderOfTheForwardPass) {
  auto graph = build_graph(small());
  std::vector<std::string> names;
  for (const StageInfo& stage : graph->stages()) {
    names.push_back(stage.name);
    EXPECT_TRUE(stage.trainable) << stage.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"vision_encoder", "projector", "audio_encoder", "audio_projector",
                                             "llm_decoder", "loss"}));
  EXPECT_EQ(graph->stages()[4].inputs, (std::vector<std::string>{"projector", "audio_projector"}));
  EXPECT_TRUE(graph->stages()[2].needs_media);
  EXPECT_EQ(graph->stages()[3].parameters, 12 * 16 + 16);
  EXPECT_GT(graph->stages()[2].flops_per_position, 0);
  // Whisper's positions are sinusoids that are never trained.
  EXPECT_EQ(std::ranges::count(graph->layout().tensors, "audio_tower.embed_positions.weight", &FlatTensor::name), 0);
  EXPECT_EQ(std::ranges::count(graph->frozen_layout().tensors, "audio_tower.embed_positions.weight", &FlatTensor::name), 1);
}

TEST(OmniGraph, PackedEqualsOneByOne) {
  auto graph = build_graph(small());
  const Gradients packed = run(*graph, mixed());
  expect_each_once(packed, *graph);
  std::fill_n(graph->gradients(), graph->layout().size, 0.0f);
  double loss = 0;
  for (size_t i = 0; i < kSamples.size(); ++i) {
    const auto [images, frames, sounds, text] = kSamples[i];
    MicroBatch b;
    append(b, images, frames, sounds, text, i + 1);
    loss += graph->forward_backward(b, nullptr).loss;
  }
  EXPECT_NEAR(loss, packed.sums.loss, 1e-5 * loss);
  EXPECT_LT(error({graph->gradients(), graph->gradients() + graph->layout().size}, packed.values), 1e-5);
}

TEST(OmniGraph, WhatIsAbsentHasZeroGradientsAndIsReported) {
  auto graph = build_graph(small());
  for (int present = 0; present < 8; ++present) {  // of image, video, audio
    const bool image = present & 1, video = present & 2, audio = present & 4;
    MicroBatch b;
    append(b, 0, 0, 0, 9, 1);
    append(b, image, video ? 2 : 0, audio, 6, 2);
    const Gradients g = run(*graph, b);
    expect_each_once(g, *graph);
    EXPECT_EQ(graph->evaluate(b).loss, g.sums.loss);
    for (const auto& [name, values] : by_name(*graph, g)) {
      const bool zero = std::ranges::all_of(values, [](float v) { return v == 0; });
      const bool vision = name.starts_with("vision_tower") || name.starts_with("multi_modal_projector"),
                 sound = name.starts_with("audio_");
      EXPECT_EQ(zero, vision ? !(image || video) : sound ? !audio : false) << name << " " << present;
    }
  }
}

TEST(OmniGraph, AModelWithMoreComputesThePlainPartAlike) {
  Json plain = small_config();
  for (const char* key : {"video_token_index", "audio_token_index", "audio_config"}) plain.erase(key);
  auto without = build_graph(options_of(plain)), with = build_graph(small());
  MicroBatch b;
  append(b, 1, 0, 0, 7, 1);
  append(b, 2, 0, 0, 3, 2);
  append(b, 0, 0, 0, 9, 3);
  const Gradients a = run(*without, b), c = run(*with, b);
  EXPECT_EQ(a.sums.loss, c.sums.loss);
  const auto named = by_name(*with, c);
  for (const auto& [name, values] : by_name(*without, a)) EXPECT_EQ(values, named.at(name)) << name;
}

TEST(OmniGraph, FrozenPartsLeaveOtherGradientsAlone) {
  auto all = build_graph(small());
  const auto reference = by_name(*all, run(*all, mixed()));
  for (const std::vector<std::string>& freeze :
       {std::vector<std::string>{"audio_encoder"},
        {"audio_projector"},
        {"audio_encoder", "audio_projector"},
        {"vision_encoder", "projector"},
        {"vision_encoder", "projector", "llm_decoder"},
        {"audio_encoder", "audio_projector", "llm_decoder"},
        {"vision_encoder", "audio_encoder", "llm_decoder"},
        {"audio_tower.conv1.*"},
        {"audio_tower.conv2.*"},
        {"audio_tower.conv1.weight", "audio_tower.conv2.bias"},
        {"audio_tower.conv*"},
        {"audio_tower.conv*", "audio_tower.layers.*"},
        {"audio_tower.conv*", "audio_tower.layers.0.*"},
        {"*k_proj.weight", "*fc1.bias"},
        {"audio_tower.layer_norm.*"}}) {
    for (bool recompute : {false, true}) {
      ModelOptions options = small();
      options.recompute = recompute;
      options.freeze = freeze;
      auto graph = build_graph(options);
      const Gradients g = run(*graph, mixed());
      expect_each_once(g, *graph);
      for (const auto& [name, values] : by_name(*graph, g)) {
        if (name.ends_with("k_proj.bias")) continue;  // zero but for rounding
        EXPECT_LT(error(values, reference.at(name)), 2e-5) << name << " with " << freeze[0] << " frozen";
      }
      EXPECT_LT(graph->layout().tensors.size(), all->layout().tensors.size());
    }
  }
}

TEST(OmniGraph, RecomputationGivesTheSameBits) {
  for (ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    ModelOptions options = small({{"vision_feature_layer", {1, 3}}, {"vision_feature_select_strategy", "default"}});
    options.compute = compute;
    auto plain = build_graph(options);
    options.recompute = true;
    auto again = build_graph(options);
    const Gradients a = run(*plain, mixed()), b = run(*again, mixed());
    EXPECT_EQ(a.values, b.values);
    EXPECT_EQ(a.order, b.order);
  }
}

TEST(OmniGraph, BFloat16IsClose) {
  ModelOptions options = small();
  auto full = build_graph(options);
  options.compute = ComputeType::kBF16;
  auto half = build_graph(options);
  const Gradients a = run(*full, mixed()), b = run(*half, mixed());
  EXPECT_NEAR(b.sums.loss, a.sums.loss, 0.02 * a.sums.loss);
  const auto right = by_name(*full, a), rounded = by_name(*half, b);
  for (const char* name : {"audio_tower.conv1.weight", "audio_tower.conv2.weight", "audio_tower.layers.0.fc1.weight",
                           "audio_projector.linear.weight", "multi_modal_projector.linear_1.weight"}) {
    double dot = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < right.at(name).size(); ++i) {
      const double x = right.at(name)[i], y = rounded.at(name)[i];
      dot += x * y, aa += x * x, bb += y * y;
    }
    EXPECT_GT(dot / std::sqrt(aa * bb), 0.98) << name;
  }
}

// Central differences along the gradient of each stage alone, so that no stage hides behind a larger one.
TEST(OmniGraph, GradientIsTheSlopeOfTheLossStageByStage) {
  auto graph = build_graph(small({{"vision_feature_select_strategy", "full"}, {"spatial_pool_stride", 1}}));
  // Without pooling a frame takes 4 positions, and an image with its class token 5.
  MicroBatch b;
  append(b, 0, 4, 0, 6, 1);
  append(b, 0, 0, 2, 6, 2);
  HostTensor one_frame = HostTensor::make(DType::kF32, {1, 3, 8, 8});
  std::memcpy(one_frame.bytes.data(), b.media["pixel_values_videos"].bytes.data(), one_frame.bytes.size());
  b.media["pixel_values_videos"] = std::move(one_frame);
  const Gradients g = run(*graph, b);
  const std::vector<float> start(graph->weights(), graph->weights() + graph->layout().size);
  for (const char* stage : {"vision_encoder", "projector", "audio_encoder", "audio_projector", "llm_decoder"}) {
    std::vector<float> direction(start.size());
    double norm = 0;
    for (const FlatTensor& t : graph->layout().tensors)
      if (t.stage == stage)
        for (size_t i = t.offset; i < t.offset + t.count; ++i)
          direction[i] = g.values[i], norm += double{g.values[i]} * g.values[i];
    ASSERT_GT(norm, 0) << stage;
    const double step = 3e-3 / std::sqrt(norm);
    double losses[2];
    for (int side = 0; side < 2; ++side) {
      for (size_t i = 0; i < start.size(); ++i)
        graph->weights()[i] = static_cast<float>(start[i] + (side ? step : -step) * direction[i]);
      losses[side] = graph->evaluate(b).loss;
    }
    std::ranges::copy(start, graph->weights());
    EXPECT_NEAR((losses[1] - losses[0]) / (2 * step) / norm, 1, 2e-2) << stage;
  }
}

TEST(OmniGraph, RefusesBatchesThatDoNotFit) {
  auto graph = build_graph(small());
  auto refused = [&](const char* named, auto change) {
    MicroBatch b = mixed();
    change(b);
    try {
      graph->forward_backward(b, nullptr);
      ADD_FAILURE() << named;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
    }
  };
  refused("video positions", [](MicroBatch& b) { b.media_positions["video"].pop_back(); });
  refused("audio positions", [](MicroBatch& b) { b.media_positions["audio"].push_back(0); });
  refused("video positions without pixel_values_videos", [](MicroBatch& b) { b.media.erase("pixel_values_videos"); });
  refused("audio positions without input_features", [](MicroBatch& b) { b.media.erase("input_features"); });
  refused("twice", [](MicroBatch& b) { b.media_positions["audio"][0] = b.media_positions["image"][0]; });
  refused("outside the batch", [](MicroBatch& b) { b.media_positions["audio"][0] = b.size(); });
  refused("[5, 12]", [](MicroBatch& b) {
    HostTensor& sound = b.media["input_features"];
    sound.shape = {sound.shape[0], kMelFrames, kMel};
  });
  refused("I32", [](MicroBatch& b) { b.media["pixel_values_videos"].dtype = DType::kI32; });

  Json plain = small_config();
  for (const char* key : {"video_token_index", "audio_token_index", "audio_config"}) plain.erase(key);
  auto without = build_graph(options_of(plain));
  const std::vector<std::tuple<int, int, const char*>> kinds = {{1, 0, "takes no video"}, {0, 1, "takes no audio"}};
  for (const auto& [frames, sounds, kind] : kinds) {
    MicroBatch b;
    append(b, 0, frames, sounds, 5, 1);
    try {
      without->evaluate(b);
      ADD_FAILURE() << kind;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(kind), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace mso
