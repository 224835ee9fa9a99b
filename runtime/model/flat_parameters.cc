#include "model/flat_parameters.h"

#include <ATen/ops/from_blob.h>

#include "base/error.h"

namespace mso {

namespace {

// What the buffers below take, in the slice of each stage: float32 weights and gradients, the bfloat16 copy.
std::map<std::string, uint64_t> bytes_of_stages(const ParameterLayouts& layouts, ComputeType compute) {
  const uint64_t copy = compute == ComputeType::kBF16 ? sizeof(BFloat16Bits) : 0;
  std::map<std::string, uint64_t> bytes;
  for (const auto& [stage, elements] : elements_by_stage(layouts.trainable)) bytes[stage] += elements * (2 * sizeof(float) + copy);
  for (const auto& [stage, elements] : elements_by_stage(layouts.frozen)) bytes[stage] += elements * (sizeof(float) + copy);
  return bytes;
}

}  // namespace

FlatParameters::FlatParameters(const std::vector<ParameterSpec>& specs, const std::vector<bool>& frozen,
                               ComputeType compute)
    : compute_(compute),
      layouts_(split_layouts(specs, frozen)),
      memory_("weights and gradients", bytes_of_stages(layouts_, compute)) {
  trainable_.master = FlatBuffer<float>(layouts_.trainable.size);
  gradients_ = FlatBuffer<float>(layouts_.trainable.size);
  frozen_.master = FlatBuffer<float>(layouts_.frozen.size);
  if (compute == ComputeType::kBF16) {
    trainable_.copy = FlatBuffer<BFloat16Bits>(layouts_.trainable.size);
    frozen_.copy = FlatBuffer<BFloat16Bits>(layouts_.frozen.size);
  }
  for (bool is_frozen : {false, true}) {
    const FlatLayout& layout = is_frozen ? layouts_.frozen : layouts_.trainable;
    for (size_t i = 0; i < layout.tensors.size(); ++i) places_[layout.tensors[i].name] = {is_frozen, i};
  }
}

at::ScalarType FlatParameters::scalar_type() const {
  return compute_ == ComputeType::kBF16 ? at::kBFloat16 : at::kFloat;
}

void FlatParameters::weights_changed(size_t begin, size_t end) {
  if (compute_ == ComputeType::kBF16)
    to_bf16(trainable_.master.data() + begin, trainable_.copy.data() + begin,
            static_cast<int64_t>(end - begin));
}

void FlatParameters::frozen_weights_changed() {
  if (compute_ == ComputeType::kBF16)
    to_bf16(frozen_.master.data(), frozen_.copy.data(), static_cast<int64_t>(layouts_.frozen.size));
}

const FlatTensor& FlatParameters::tensor(const Place& place) const {
  return (place.frozen ? layouts_.frozen : layouts_.trainable).tensors[place.index];
}

Weight FlatParameters::view(const Place& place, const std::vector<int64_t>& shape) const {
  Buffers& buffers = place.frozen ? frozen_ : trainable_;
  const size_t offset = tensor(place).offset;
  Weight weight;
  if (compute_ == ComputeType::kBF16)
    weight.value = at::from_blob(buffers.copy.data() + offset, shape, at::TensorOptions(at::kBFloat16));
  else
    weight.value = at::from_blob(buffers.master.data() + offset, shape, at::TensorOptions(at::kFloat));
  if (!place.frozen) {
    weight.gradient = at::from_blob(gradients_.data() + offset, shape, at::TensorOptions(at::kFloat));
    weight.index = static_cast<int64_t>(place.index);
  }
  return weight;
}

Weight FlatParameters::find(const std::string& name) const {
  auto it = places_.find(name);
  if (it == places_.end()) throw Error("no such parameter", name);
  return view(it->second, tensor(it->second).shape);
}

Weight FlatParameters::find_joined(const std::vector<std::string>& names) const {
  const Place first = places_.at(names[0]);
  std::vector<int64_t> shape = tensor(first).shape;
  size_t end = tensor(first).offset + tensor(first).count;
  for (size_t i = 1; i < names.size(); ++i) {
    const Place place = places_.at(names[i]);
    if (place.frozen != first.frozen || tensor(place).offset != end) return {};
    end += tensor(place).count;
    shape[0] += tensor(place).shape[0];
  }
  return view(first, shape);
}

}  // namespace mso
