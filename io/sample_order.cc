#include "io/sample_order.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"

namespace mso {

SampleOrder SampleOrder::shuffled(uint64_t n, uint64_t seed) {
  if (n == 0) throw Error("no samples to order", "data set", "", ExitCode::kBadData);
  return SampleOrder(n, seed, true);
}

SampleOrder SampleOrder::sequential(uint64_t n) {
  if (n == 0) throw Error("no samples to order", "data set", "", ExitCode::kBadData);
  return SampleOrder(n, 0, false);
}

uint64_t SampleOrder::id_at(uint64_t position) const {
  if (!shuffled_) return position;
  return KeyedPermutation(n_, random_bits({seed_, position / n_}))(position % n_);
}

GlobalBatch SampleOrder::global_batch(uint64_t step, uint64_t batch_samples) const {
  GlobalBatch batch;
  batch.step = step;
  batch.first_position = step * batch_samples;
  for (uint64_t i = 0; i < batch_samples; ++i) {
    const uint64_t position = batch.first_position + i;
    if (!shuffled_ && position >= n_) break;
    batch.ids.push_back(id_at(position));
    batch.epochs.push_back(position / n_);
  }
  return batch;
}

std::string sample_digest(const GlobalBatch& batch, const std::vector<bool>& skipped) {
  std::string bytes;
  for (size_t i = 0; i < batch.ids.size(); ++i) {
    if (!skipped.empty() && skipped.at(i)) continue;
    for (int b = 0; b < 8; ++b) bytes.push_back(static_cast<char>(batch.ids[i] >> (8 * b)));
  }
  return hex64(hash64(bytes));
}

}  // namespace mso
