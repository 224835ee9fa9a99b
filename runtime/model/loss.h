// Stage "loss": the language model head and the cross entropy, only at positions with a label and in chunks
// of rows, so that logits of a whole batch never exist.
#pragma once

#include "model/linear.h"
#include "model/stage.h"

namespace mso {

class LossStage : public Stage {
 public:
  // `tied`: the head is the embedding matrix, whose gradient the decoder completes and reports.
  LossStage(const FlatParameters& parameters, bool tied);

  // input: normed rows [L, hidden], one per batch.targets → the summed loss, [] float64. With `kept`,
  // gradients are formed at once: that of a sum of losses needs nothing from later stages.
  at::Tensor forward(const StageBatch& batch, const at::Tensor& input, std::unique_ptr<Kept>* kept) override;
  at::Tensor backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                      bool want_input_gradient, GradientSink& sink) override;
  at::Tensor logits(const at::Tensor& input) const;  // [rows, vocabulary] in the compute type

 private:
  struct AllKept : Kept {
    at::Tensor input_gradient;
  };
  LinearWeights head_;
  std::vector<int64_t> to_report_;
};

}  // namespace mso
