#include "exec/evaluator.h"

#include <limits>

namespace mso {

EvaluationResult evaluate_held_out(TrainingGraph& graph, Communicator& group,
                                   const std::shared_ptr<const SampleAssembler>& held_out, uint64_t max_samples,
                                   const MicroBatchLimits& micro_batch, int decoder_threads, double timeout_s) {
  DataLoaderOptions options;
  options.batch_samples = 32;
  options.rank = group.rank();
  options.ranks = group.size();
  options.micro_batch = micro_batch;
  options.threads = decoder_threads;
  options.timeout_s = timeout_s;
  options.sequential = true;
  options.max_samples = max_samples;
  DataLoader loader(held_out, options);
  loader.start(0);
  // Per-sample sums are added in double; which rank adds which sample changes the last bits only.
  double sums[3] = {0, 0, 0};
  for (uint64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    RankBatch batch = loader.next();
    for (const MicroBatch& micro_batch : batch.micro_batches) {
      LossSums loss = graph.evaluate(micro_batch);
      sums[0] += loss.loss;
      sums[1] += static_cast<double>(loss.labels);
    }
    sums[2] += static_cast<double>(batch.bad_samples.size());
  }
  all_reduce_now(group, sums, 3, DType::kF64, ReduceOp::kSum, timeout_s);
  EvaluationResult result;
  result.loss = sums[1] > 0 ? sums[0] / sums[1] : std::numeric_limits<double>::quiet_NaN();
  result.labels = static_cast<int64_t>(sums[1]);
  result.bad_samples = static_cast<int64_t>(sums[2]);
  return result;
}

}  // namespace mso
