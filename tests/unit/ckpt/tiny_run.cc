#include "tiny_run.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "thread_communicator.h"

namespace mso::testing {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string name =
      (::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/mso-test-XXXXXX");
  if (!::mkdtemp(name.data())) throw system_error("cannot create", name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

FlatLayout tiny_layout() {
  std::vector<FlatTensor> tensors;
  auto add = [&](const char* name, std::vector<int64_t> shape) {
    tensors.push_back({name, "stage", std::move(shape), 0, 0});
  };
  add("embed.weight", {37, 24});
  add("scale", {});
  add("norm.weight", {3});
  add("layer.weight", {64, 129});
  add("layer.bias", {17});
  add("one", {1});
  add("conv.weight", {5, 3, 7, 7});
  return make_flat_layout(std::move(tensors));
}

float tiny_value(const std::string& buffer, const std::string& tensor, uint64_t element, uint64_t step) {
  return static_cast<float>(
      random_uniform({std::hash<std::string>()(buffer), std::hash<std::string>()(tensor), element, step}) -
      0.5);
}

TinyState::TinyState(int rank, int ranks) {
  const FlatLayout layout = tiny_layout();
  shard = make_shard(plan_buckets(layout, 2000, ranks), rank);
  slices = slices_of_shard(layout, shard);
  for (const char* name : {"master", "exp_avg", "exp_avg_sq"}) buffers[name].assign(shard.size, 0.f);
  for (std::vector<float>& gradient : gradients) gradient.assign(shard.size, 0.f);
}

void TinyState::advance_to(uint64_t step) {
  for (auto& [name, data] : buffers)
    for (const TensorSlice& s : slices)
      for (uint64_t i = s.begin; i < s.end; ++i)
        data[s.offset + i - s.begin] = tiny_value(name, s.name, i, step);
  for (const TensorSlice& s : slices)
    for (uint64_t i = s.begin; i < s.end; ++i)
      gradients[step % std::size(gradients)][s.offset + i - s.begin] = tiny_value("gradient", s.name, i, step);
}

StateView TinyState::view(uint64_t step) const {
  StateView view;
  view.step = step;
  for (const auto& [name, data] : buffers)
    view.buffers.push_back({name, DType::kF32, data.data(), data.size(), slices});
  view.records["cursor"] = "{\"position\": " + std::to_string(step * 100) + "}";
  view.records["config"] = "train:\n  caption: \xe2\x82\xac\n";
  view.records["plan"] = "{}";
  view.records["tokenizer"] = std::string(5000 + step, 't');
  view.records["empty"] = "";
  return view;
}

StateView TinyState::view_with_gradient(uint64_t step) const {
  StateView result = view(step);
  const std::vector<float>& gradient = gradients[step % std::size(gradients)];
  result.buffers.push_back(
      {gradient_buffer_name(step), DType::kF32, gradient.data(), gradient.size(), slices});
  result.records["update"] = encode_update(tiny_update(step));
  return result;
}

TargetBuffer TinyState::gradient_target(uint64_t step) {
  std::vector<float>& gradient = gradients[step % std::size(gradients)];
  std::fill(gradient.begin(), gradient.end(), 77.f);
  return {gradient_buffer_name(step), DType::kF32, gradient.data(), gradient.size(), slices};
}

std::string TinyState::gradient_difference(uint64_t step) const {
  std::vector<float> expected(shard.size, 0.f);
  for (const TensorSlice& s : slices)
    for (uint64_t i = s.begin; i < s.end; ++i)
      expected[s.offset + i - s.begin] = tiny_value("gradient", s.name, i, step);
  return gradients[step % std::size(gradients)] == expected ? "" : "gradient of step " + std::to_string(step);
}

StepUpdate tiny_update(uint64_t step) {
  const double x = random_uniform({step, 9});
  return {step, 1e-3 * x, 100 + static_cast<double>(step), x / 3, step % 5 != 2};
}

void wait_for_level0(int, uint64_t, CheckpointManager& manager) {
  const Deadline deadline = deadline_in(20);
  auto settled = [&] {
    const ProgressFlags flags = manager.flags();
    return flags.l0_finished + flags.l0_failed > 0;
  };
  while (!settled() && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::vector<TargetBuffer> TinyState::targets() {
  std::vector<TargetBuffer> result;
  for (auto& [name, data] : buffers) {
    std::fill(data.begin(), data.end(), 77.f);
    result.push_back({name, DType::kF32, data.data(), data.size(), slices});
  }
  return result;
}

std::string TinyState::difference(uint64_t step) const {
  for (const auto& [name, data] : buffers) {
    std::vector<float> expected(data.size(), 0.f);
    for (const TensorSlice& s : slices)
      for (uint64_t i = s.begin; i < s.end; ++i)
        expected[s.offset + i - s.begin] = tiny_value(name, s.name, i, step);
    for (size_t i = 0; i < data.size(); ++i)
      if (data[i] != expected[i])
        return name + "[" + std::to_string(i) + "] is " + std::to_string(data[i]) + " not " +
               std::to_string(expected[i]);
  }
  return "";
}

CheckpointSettings tiny_settings(const fs::path& folder) {
  CheckpointSettings settings;
  settings.run_dir = folder / "run";
  settings.level0_path = folder / "ram";
  settings.node = "node";
  settings.level0_interval_s = 0;
  settings.level1_interval_s = -1;
  settings.level2_interval_s = -1;
  settings.timeout_s = 20;
  return settings;
}

namespace {

void train(const TinyOptions& options, int rank, Communicator& world, TinyResult& result) {
  CheckpointSettings settings = tiny_settings(options.folder);
  if (options.adjust) options.adjust(settings, rank);
  RunAttempt attempt = RunAttempt::begin(settings.run_dir, world, settings.timeout_s);
  settings.run_id = attempt.run_id();
  settings.earlier_run_ids = attempt.earlier_run_ids();
  settings.attempt = attempt.number();
  TinyState state(rank, options.ranks);
  uint64_t step = 0;
  std::optional<ResumedFrom> resumed;
  if (std::optional<FoundState> found = find_state(settings, world)) {
    resumed = found->resumed();
    step = found->choice.step;
    LoadReport report = load_state(settings, world, *found, state.targets());
    std::string difference = state.difference(found->choice.base_step());
    for (size_t i = 0; i < found->updates.size(); ++i) {
      const uint64_t to = found->choice.base_step() + i + 1;
      LoadReport gradient = load_delta(settings, world, *found, i, {state.gradient_target(to)});
      report.source = std::max(report.source, gradient.source);
      if (difference.empty()) difference = state.gradient_difference(to);
      if (found->updates[i] != tiny_update(to)) difference = "update of step " + std::to_string(to);
      if (gradient.step != to) difference = "step of the gradient";
      state.advance_to(to);
    }
    if (found->updates.size() != found->choice.deltas.size()) difference = "number of updates";
    if (!difference.empty()) result.difference = difference;
    if (rank == 0) {
      result.resumed = found->choice;
      result.source = report.source;
      result.cursor = found->records["cursor"];
      result.updates = found->updates;
    }
  }
  CheckpointManager manager(settings, world.split(0, rank, "snapshots"), resumed);
  while (step < options.until) {
    auto values = encode_flags(manager.flags());
    all_reduce_now(world, values.data(), values.size(), DType::kF64, ReduceOp::kSum, settings.timeout_s);
    SnapshotDecision decision = manager.on_agreed(decode_flags(values));
    if (decision.attempt_lost) {
      if (rank == 0) result.attempt_lost = true;
      return;
    }
    manager.fence(deadline_in(5));
    if (step > kMaxDeltas) manager.fence_gradient(step - kMaxDeltas, deadline_in(5));
    state.advance_to(++step);
    if (decision.levels)
      manager.begin(decision.levels, options.gradients ? state.view_with_gradient(step) : state.view(step));
    if (options.each_step) options.each_step(rank, step, manager);
    for (SnapshotEvent& event : manager.drain_events()) result.events[rank].push_back(event);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (options.final_snapshot) manager.write_final(state.view(step), deadline_in(20));
  if (options.finish && !manager.finish(deadline_in(20))) result.finished = false;
  for (SnapshotEvent& event : manager.drain_events()) result.events[rank].push_back(event);
}

}  // namespace

TinyResult run_tiny(const TinyOptions& options) {
  fs::create_directories(options.folder / "ram");
  TinyResult result;
  result.events.resize(options.ranks);
  result.errors.resize(options.ranks);
  auto group = std::make_shared<ThreadGroup>(options.ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto world = group->join(rank);
      try {
        train(options, rank, *world, result);
      } catch (const Error& e) {
        result.errors[rank] = e.what();
        if (rank == 0) result.exit_code = e.exit_code();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return result;
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  if (fs::exists(folder))
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace mso::testing
