// Evaluation on held-out samples: the mean loss over their label tokens, the same for any number of ranks.
#pragma once

#include "comm/communicator.h"
#include "io/data_loader.h"
#include "model/training_graph.h"

namespace mso {

struct EvaluationResult {
  double loss = 0;  // mean over labels; NaN when there was none
  int64_t labels = 0, bad_samples = 0;
};

// Collective. Goes once through the held-out samples in order (at most `max_samples`, 0: all).
EvaluationResult evaluate_held_out(TrainingGraph& graph, Communicator& group,
                                   const std::shared_ptr<const SampleAssembler>& held_out, uint64_t max_samples,
                                   const MicroBatchLimits& micro_batch, int decoder_threads, double timeout_s);

}  // namespace mso
