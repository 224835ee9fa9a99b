// parity CASE_DIR…: compares the model with reference cases made by make_reference.py (any sizes) and prints
// the errors. Exit 0: all within tolerance; 1: some above; 2: a folder cannot be read.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/safetensors.h"
#include "exec/adamw.h"
#include "model/hf_names.h"
#include "model/training_graph.h"

namespace {

using namespace mso;
using Json = nlohmann::json;

constexpr double kOutput = 1e-5, kGradient = 1e-5, kStepFromFile = 1e-6, kStepEndToEnd = 1e-5;

std::vector<float> read_floats(const SafetensorsFolder& file, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(file.entry(name).count()));
  file.read_f32(name, 0, values.size(), values.data());
  return values;
}

std::vector<int64_t> read_integers(const SafetensorsFolder& file, const std::string& name) {
  HostTensor tensor = file.read(name);
  if (tensor.dtype != DType::kI64)
    throw Error("not 64-bit integers", name + " in " + file.file_of(name).string());
  return {tensor.data<int64_t>(), tensor.data<int64_t>() + tensor.count()};
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (float v : values) most = std::max(most, std::abs(static_cast<double>(v)));
  return most;
}

// NaN counts as infinitely wrong.
double difference(double a, double b) {
  double d = std::abs(a - b);
  return std::isnan(d) ? INFINITY : d;
}

struct Case {
  MicroBatch batch;
  std::vector<int64_t> origin;  // packed position → position in the padded [rows, width] tensors
};

// Rows lose their padding; labels move to the position that predicts them.
Case pack(const SafetensorsFolder& inputs, const LlavaConfig& config) {
  const std::pair<const char*, int64_t> media_tokens[] = {
      {"image", config.image_token_index}, {"video", config.video_token_index}, {"audio", config.audio_token_index}};
  const std::vector<int64_t> shape = inputs.entry("input_ids").shape;
  const std::vector<int64_t> ids = read_integers(inputs, "input_ids"),
                             labels = read_integers(inputs, "labels");
  const std::vector<int64_t> mask = inputs.contains("attention_mask")
                                        ? read_integers(inputs, "attention_mask")
                                        : std::vector<int64_t>(ids.size(), 1);
  if (shape.size() != 2 || labels.size() != ids.size() || mask.size() != ids.size())
    throw Error("unexpected shape of inputs", "input_ids, labels, attention_mask");
  Case c;
  c.batch.sample_starts.push_back(0);
  for (int64_t row = 0; row < shape[0]; ++row) {
    std::vector<int64_t> kept;
    for (int64_t i = row * shape[1]; i < (row + 1) * shape[1]; ++i)
      if (mask[static_cast<size_t>(i)]) kept.push_back(i);
    for (size_t k = 0; k < kept.size(); ++k) {
      const size_t i = static_cast<size_t>(kept[k]);
      for (const auto& [kind, token] : media_tokens)
        if (ids[i] == token) c.batch.media_positions[kind].push_back(c.batch.size());
      c.batch.tokens.push_back(ids[i]);
      c.batch.labels.push_back(k + 1 < kept.size() ? labels[static_cast<size_t>(kept[k + 1])] : kIgnoreLabel);
      c.batch.positions.push_back(static_cast<int64_t>(k));
      c.origin.push_back(kept[k]);
    }
    c.batch.sample_starts.push_back(c.batch.size());
    c.batch.sample_ids.push_back(static_cast<uint64_t>(row));
  }
  for (const char* tensor : {"pixel_values", "pixel_values_videos", "input_features"})
    if (inputs.contains(tensor)) c.batch.media[tensor] = inputs.read(tensor);
  return c;
}

class Report {
 public:
  void add(const char* what, double error, double tolerance, const std::string& where = "") {
    const bool good = error <= tolerance;
    good_ &= good;
    std::printf("  %-24s %.2e  (at most %.0e)%s%s%s\n", what, error, tolerance, good ? "" : "  ABOVE",
                where.empty() ? "" : "  ", where.c_str());
  }
  void fail(const std::string& what) {
    good_ = false;
    std::printf("  WRONG: %s\n", what.c_str());
  }
  bool good() const { return good_; }

 private:
  bool good_ = true;
};

// The largest of some errors, and where.
struct Worst {
  double error = 0;
  std::string where;
  void add(double value, const std::string& name) {
    if (where.empty() || value > error) error = value, where = name;
  }
};

bool run(const std::filesystem::path& folder) {
  ModelOptions options;
  options.path = folder.string();
  const LlavaConfig config = model_config(options);
  auto graph = build_graph(options);
  const SafetensorsFolder inputs(folder / "inputs.safetensors"), expected(folder / "expected.safetensors");
  const Case c = pack(inputs, config);
  std::printf("%s: %lld positions, %lld labels\n", folder.c_str(), static_cast<long long>(c.batch.size()),
              static_cast<long long>(c.batch.label_count()));
  Report report;

  if (expected.contains("logits")) {
    const std::vector<float> reference = read_floats(expected, "logits");
    const at::Tensor logits = graph->logits(c.batch);
    const int64_t vocabulary = logits.size(1);
    const float* ours = logits.const_data_ptr<float>();
    double error = 0, most = 0;
    for (size_t t = 0; t < c.origin.size(); ++t)
      for (int64_t v = 0; v < vocabulary; ++v) {
        const double right = reference[static_cast<size_t>(c.origin[t] * vocabulary + v)];
        error = std::max(error, difference(ours[static_cast<int64_t>(t) * vocabulary + v], right));
        most = std::max(most, std::abs(right));
      }
    report.add("logits", error / most, kOutput);
  }

  const FlatLayout& layout = graph->layout();
  std::vector<int> calls(layout.tensors.size());
  const LossSums sums = graph->forward_backward(c.batch, [&](size_t i) { ++calls[i]; });
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i] != 1)
      report.fail("gradient of " + layout.tensors[i].name + " reported " + std::to_string(calls[i]) +
                  " times");
  const double loss = sums.loss / static_cast<double>(sums.labels),
               right_loss = read_floats(expected, "loss")[0];
  report.add("loss", difference(loss, right_loss) / std::abs(right_loss), kOutput);
  report.add("loss (forward only)", difference(graph->evaluate(c.batch).loss, sums.loss) / sums.loss, 1e-12);

  const Json adamw = Json::parse(read_file(folder / "case.json")).at("adamw");
  AdamWParameters step;
  step.lr = adamw.at("lr");
  step.beta1 = adamw.at("betas").at(0);
  step.beta2 = adamw.at("betas").at(1);
  step.eps = adamw.at("eps");
  step.weight_decay = adamw.at("weight_decay");

  std::map<std::string, std::string> gradients, steps;  // logical name → name in the file
  double case_most = 0;
  for (const std::string& name : expected.names()) {
    if (name.starts_with("grad.")) {
      gradients[logical_name(name.substr(5))] = name;
      case_most = std::max(case_most, largest(read_floats(expected, name)));
    }
    if (name.starts_with("step.")) steps[logical_name(name.substr(5))] = name;
  }
  Worst gradient_error, step_error, end_error;
  double largest_weight = 0;
  for (const FlatTensor& tensor : layout.tensors) {
    auto found = gradients.find(tensor.name);
    if (found == gradients.end()) {
      report.fail("no gradient of " + tensor.name + " in expected.safetensors");
      continue;
    }
    const std::vector<float> reference = read_floats(expected, found->second);
    gradients.erase(found);
    const double tensor_most = largest(reference);
    const float* ours = graph->gradients() + tensor.offset;
    const double scale = 1.0 / static_cast<double>(sums.labels);
    double error = 0;
    for (size_t i = 0; i < tensor.count; ++i)
      error = std::max(error, difference(ours[i] * scale, reference[i]));
    gradient_error.add(error / std::max(tensor_most, 1e-4 * case_most), tensor.name);

    const std::vector<float> right = read_floats(expected, steps.at(tensor.name));
    auto stepped = [&](const float* gradient, double gradient_scale) {
      std::vector<float> weights(graph->weights() + tensor.offset,
                                 graph->weights() + tensor.offset + tensor.count);
      std::vector<float> first(tensor.count), second(tensor.count);
      AdamWParameters parameters = step;
      parameters.gradient_scale = gradient_scale;
      adamw_step(weights.data(), first.data(), second.data(), gradient, tensor.count, parameters);
      return weights;
    };
    const std::vector<float> from_file = stepped(reference.data(), 1), end_to_end = stepped(ours, scale);
    const double most = largest(right);
    double file_worst = 0, end_worst = 0;
    for (size_t i = 0; i < tensor.count; ++i) {
      file_worst = std::max(file_worst, difference(from_file[i], right[i]));
      // Gradients that are zero but for rounding (biases of keys) have the same floor as in the comparison
      // above.
      if (std::abs(reference[i]) >= 1e-4 * std::max(tensor_most, 1e-4 * case_most))
        end_worst = std::max(end_worst, difference(end_to_end[i], right[i]));
    }
    largest_weight = std::max(largest_weight, most);
    step_error.add(file_worst / most, tensor.name);
    end_error.add(end_worst, tensor.name);
  }
  for (const auto& [name, in_file] : gradients) report.fail("no gradient of ours for " + in_file);
  report.add("gradients", gradient_error.error, kGradient, gradient_error.where);
  report.add("AdamW, file's gradients", step_error.error, kStepFromFile, step_error.where);
  // Near eps, AdamW turns a rounding of a tiny gradient into a visible part of lr, so this one is measured
  // against the largest weight of the case, as logits are against the largest logit.
  report.add("AdamW, end to end", end_error.error / largest_weight, kStepEndToEnd, end_error.where);
  return report.good();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: parity CASE_DIR…\n");
    return 2;
  }
  int code = 0;
  for (int i = 1; i < argc; ++i) {
    try {
      if (!run(argv[i]) && code == 0) code = 1;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "parity: %s: %s\n", argv[i], e.what());
      code = 2;
    }
  }
  std::printf("%s\n", code == 0   ? "all within tolerance"
                      : code == 1 ? "ABOVE TOLERANCE"
                                  : "not all could be read");
  return code;
}
