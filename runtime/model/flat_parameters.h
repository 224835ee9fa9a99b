// Parameters in flat buffers: float32 master weights and gradients of what trains, float32 weights of what is
// frozen, a bfloat16 copy of both for bfloat16 compute. Tensors are views.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "memory/flat_buffer.h"
#include "memory/slice_reservation.h"
#include "model/kernels.h"
#include "model/parameters.h"
#include "model/training_graph.h"

namespace mso {

// One parameter as a layer sees it.
struct Weight {
  at::Tensor value;     // in the compute type
  at::Tensor gradient;  // float32; undefined when frozen
  int64_t index = -1;   // in the trainable layout; -1 when frozen
  bool trainable() const { return index >= 0; }
};

class FlatParameters {
 public:
  FlatParameters(const std::vector<ParameterSpec>& specs, const std::vector<bool>& frozen,
                 ComputeType compute);

  const ParameterLayouts& layouts() const { return layouts_; }
  ComputeType compute() const { return compute_; }
  at::ScalarType scalar_type() const;
  float* weights() { return trainable_.master.data(); }
  float* gradients() { return gradients_.data(); }
  float* frozen_weights() { return frozen_.master.data(); }
  // Refreshes the bfloat16 copy of elements [begin, end) of the trainable, or of all frozen weights.
  void weights_changed(size_t begin, size_t end);
  void frozen_weights_changed();

  Weight find(const std::string& name) const;
  // The matrices (or vectors) of `names`, which share all dimensions but the first, as one, when they lie
  // side by side without a gap and are all trainable or all frozen; else an empty Weight.
  Weight find_joined(const std::vector<std::string>& names) const;

 private:
  struct Buffers {
    FlatBuffer<float> master;
    FlatBuffer<BFloat16Bits> copy;
  };
  struct Place {
    bool frozen;
    size_t index;
  };
  const FlatTensor& tensor(const Place& place) const;
  Weight view(const Place& place, const std::vector<int64_t>& shape) const;

  ComputeType compute_;
  ParameterLayouts layouts_;
  SliceReservation memory_;  // before the buffers it stands for
  mutable Buffers trainable_, frozen_;
  mutable FlatBuffer<float> gradients_;
  std::map<std::string, Place> places_;
};

}  // namespace mso
