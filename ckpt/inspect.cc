#include "ckpt/inspect.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/run_identity.h"
#include "ckpt/shared_store.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

double half_to_double(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double value = exponent == 31  ? (fraction ? std::numeric_limits<double>::quiet_NaN()
                                             : std::numeric_limits<double>::infinity())
                 : exponent == 0 ? std::ldexp(fraction, -24)
                                 : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

double element(DType dtype, const char* at) {
  switch (dtype) {
    case DType::kF32: {
      float v;
      std::memcpy(&v, at, 4);
      return v;
    }
    case DType::kF64: {
      double v;
      std::memcpy(&v, at, 8);
      return v;
    }
    case DType::kF16: {
      uint16_t v;
      std::memcpy(&v, at, 2);
      return half_to_double(v);
    }
    case DType::kBF16: {
      uint16_t v;
      std::memcpy(&v, at, 2);
      return std::bit_cast<float>(static_cast<uint32_t>(v) << 16);
    }
    default:
      throw Error("cannot read as numbers", name_of(dtype));
  }
}

}  // namespace

FoundFiles find_run_files(const fs::path& run_dir, const fs::path& level0_path) {
  CheckpointSettings settings;
  settings.run_dir = run_dir;
  settings.level0_path = level0_path;
  const RunIdentity identity = read_identity(run_dir);
  settings.run_id = identity.run_id;
  settings.earlier_run_ids = identity.earlier;
  if (settings.run_id.empty())
    throw Error("not the folder of a run", run_dir.string(), "give train.run_dir: it holds a file 'run_id'",
                ExitCode::kBadUsage);
  return list_snapshot_files(settings, *make_single_communicator("inspect"));
}

std::vector<StateSummary> summarise_run(FoundFiles& found, bool verify) {
  using Key = std::tuple<int, uint64_t, int64_t, int, int>;
  std::map<Key, StateSummary> states;
  std::map<Key, std::set<int>> parts;
  for (ShardFile& file : found.files) {
    if (verify && file.valid) {
      try {
        verify_shard(file.path);
      } catch (const Error& e) {
        file.valid = false;
        file.problem = e.what();
      }
    }
    // A file whose header cannot be read is of a state only its name tells.
    const Key key(static_cast<int>(file.level), file.step, file.attempt, file.writers, file.delta);
    StateSummary& state = states[key];
    state.level = file.level;
    state.step = file.step;
    state.attempt = file.attempt;
    state.writers = file.writers;
    state.delta = file.delta;
    state.exact = state.exact && file.exact;
    state.size += file.size;
    state.time = std::max(state.time, file.time);
    if (state.path.empty()) state.path = fs::path(file.path).parent_path().string();
    if (!file.valid) {
      state.problems.push_back(file.problem);
      continue;
    }
    parts[key].insert(file.writer);
    if (file.source == ShardSource::kPartner) ++state.copies;
  }
  std::vector<StateSummary> result;
  const std::vector<StateChoice> whole = whole_states(found.files);
  for (auto& [key, state] : states) {
    state.parts = static_cast<int>(parts[key].size());
    state.reached =
        state.delta == 0 || std::any_of(whole.begin(), whole.end(), [&s = state](const StateChoice& c) {
          return c.level == s.level && c.step == s.step && c.attempt == s.attempt &&
                 c.deltas.size() == static_cast<size_t>(s.delta) &&
                 static_cast<int>(c.shards.size()) == s.writers;
        });
    result.push_back(std::move(state));
  }
  std::sort(result.begin(), result.end(), [](const StateSummary& a, const StateSummary& b) {
    return a.level != b.level ? a.level < b.level : std::tie(a.step, a.attempt) > std::tie(b.step, b.attempt);
  });
  return result;
}

std::vector<std::string> state_files(const std::string& what, const fs::path& level0_path, bool deltas) {
  if (fs::is_regular_file(what)) return {what};
  if (fs::exists(fs::path(what) / "manifest.json")) {
    const std::string path = (fs::path(what) / "manifest.json").string();
    std::vector<std::string> files;
    for (const Manifest::File& file : decode_manifest(read_file(path), path).files)
      files.push_back((fs::path(what) / file.name).string());
    return files;
  }
  std::string run = what;
  std::optional<uint64_t> step;
  if (size_t at = what.rfind('@'); at != std::string::npos && at + 1 < what.size() && what.size() - at < 19 &&
                                   what.find_first_not_of("0123456789", at + 1) == std::string::npos &&
                                   !fs::exists(what)) {
    run = what.substr(0, at);
    step = std::stoull(what.substr(at + 1));
  }
  if (!fs::is_directory(run))
    throw Error("no snapshot there", what,
                "give a snapshot file, a state's folder, a run's folder or RUN@STEP", ExitCode::kBadUsage);
  FoundFiles found = find_run_files(run, level0_path);
  // Only a resuming run rolls forward: it alone has the optimizer.
  std::optional<StateChoice> choice;
  const std::vector<StateChoice> whole = whole_states(found.files);
  for (const StateChoice& state : whole) {
    if (step && state.step != *step) continue;
    if (!choice || (!choice->deltas.empty() && state.deltas.empty())) choice = state;
  }
  if (!choice) throw Error("no whole state", what, "see mso ckpt ls", ExitCode::kNoValidState);
  if (!choice->deltas.empty() && !deltas)
    throw Error("only a gradient is kept of this step", what,
                "resuming rolls the state of step " + std::to_string(choice->base_step()) +
                    " forward; look at that one: @" + std::to_string(choice->base_step()),
                ExitCode::kBadUsage);
  std::vector<std::string> files;
  for (const ShardFile& shard : choice->deltas.empty() ? choice->shards : choice->deltas.back())
    files.push_back(shard.path);
  return files;
}

uint64_t StoredTensor::elements() const {
  uint64_t n = 1;
  for (int64_t dim : shape) n *= static_cast<uint64_t>(dim);
  return n;
}

bool StoredTensor::whole() const {
  std::vector<std::pair<uint64_t, uint64_t>> covered;
  for (const Part& part : parts) covered.emplace_back(part.begin, part.end);
  std::sort(covered.begin(), covered.end());
  uint64_t at = 0;
  for (const auto& [begin, end] : covered) {
    if (begin != at) return false;
    at = end;
  }
  return at == elements();
}

StoredState open_state(const std::vector<std::string>& files) {
  StoredState state;
  state.files = files;
  std::map<std::pair<std::string, std::string>, StoredTensor> tensors;
  for (size_t f = 0; f < files.size(); ++f) {
    state.headers.push_back(verify_shard(files[f]));
    ShardContents contents = read_contents(files[f]);
    if (f == 0) state.records = contents.records;
    for (const BufferInfo& buffer : contents.buffers)
      for (const TensorSlice& slice : buffer.slices) {
        StoredTensor& tensor = tensors[{buffer.name, slice.name}];
        if (!tensor.parts.empty() && (tensor.shape != slice.shape || tensor.dtype != buffer.dtype))
          throw Error("files of different models", files[f] + " tensor '" + slice.name + "'");
        tensor.buffer = buffer.name;
        tensor.name = slice.name;
        tensor.dtype = buffer.dtype;
        tensor.shape = slice.shape;
        tensor.parts.push_back(
            {f, buffer.offset + slice.offset * size_of(buffer.dtype), slice.begin, slice.end});
      }
  }
  for (auto& [key, tensor] : tensors) state.tensors.push_back(std::move(tensor));
  return state;
}

std::vector<double> read_tensor(const StoredState& state, const StoredTensor& tensor) {
  std::vector<double> values(tensor.elements(), std::numeric_limits<double>::quiet_NaN());
  const size_t unit = size_of(tensor.dtype);
  for (const StoredTensor::Part& part : tensor.parts) {
    if (part.end > values.size()) throw Error("slice lies outside of its tensor", "'" + tensor.name + "'");
    std::vector<char> bytes((part.end - part.begin) * unit);
    const std::string& path = state.files[part.file];
    pread_all(open_file(path, O_RDONLY).get(), bytes.data(), bytes.size(), part.offset, path);
    for (uint64_t i = part.begin; i < part.end; ++i)
      values[i] = element(tensor.dtype, bytes.data() + (i - part.begin) * unit);
  }
  return values;
}

std::vector<TensorDifference> compare_states(const StoredState& a, const StoredState& b) {
  std::map<std::pair<std::string, std::string>, std::pair<const StoredTensor*, const StoredTensor*>> pairs;
  for (const StoredTensor& tensor : a.tensors) pairs[{tensor.buffer, tensor.name}].first = &tensor;
  for (const StoredTensor& tensor : b.tensors) pairs[{tensor.buffer, tensor.name}].second = &tensor;
  std::vector<TensorDifference> result;
  for (const auto& [key, pair] : pairs) {
    TensorDifference difference{key.first, key.second, 0, 0, ""};
    const auto& [first, second] = pair;
    if (!second) {
      difference.problem = "only in the first";
    } else if (!first) {
      difference.problem = "only in the second";
    } else if (first->shape != second->shape) {
      difference.problem = "shapes differ";
    } else {
      const std::vector<double> x = read_tensor(a, *first), y = read_tensor(b, *second);
      if (!first->whole() || !second->whole()) difference.problem = "parts are missing";
      for (size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(x[i]) && std::isnan(y[i])) continue;
        // Equal infinities have no difference.
        double d = x[i] == y[i] ? 0 : std::abs(x[i] - y[i]);
        if (std::isnan(d)) d = std::numeric_limits<double>::infinity();
        difference.max_difference = std::max(difference.max_difference, d);
        if (!std::isnan(x[i])) difference.max_value = std::max(difference.max_value, std::abs(x[i]));
      }
    }
    result.push_back(std::move(difference));
  }
  return result;
}

}  // namespace mso
