#include "exec/step_agreement.h"

#include <algorithm>

namespace mso {

std::vector<uint64_t> StepOpening::encode() const {
  std::vector<uint64_t> words(1 + (codes.size() + 7) / 8, 0);
  words[0] = stop ? 1 : 0;
  for (size_t i = 0; i < codes.size(); ++i) words[1 + i / 8] |= static_cast<uint64_t>(codes[i]) << (i % 8 * 8);
  return words;
}

StepOpening StepOpening::decode(const std::vector<uint64_t>& words, size_t positions) {
  StepOpening opening;
  opening.stop = words[0] != 0;
  opening.codes.resize(positions);
  for (size_t i = 0; i < positions; ++i) opening.codes[i] = static_cast<uint8_t>(words[1 + i / 8] >> (i % 8 * 8));
  return opening;
}

// A sample belongs to one rank and only that rank sets its code, so bitwise or joins the codes.
StepOpening agree_on_opening(Communicator& group, const StepOpening& mine, double timeout_s) {
  std::vector<uint64_t> words = mine.encode();
  all_reduce_now(group, words.data(), words.size(), DType::kU64, ReduceOp::kBitOr, timeout_s);
  return StepOpening::decode(words, mine.codes.size());
}

StepSums sum_over_ranks(Communicator& group, const StepSums& mine, double timeout_s) {
  std::vector<double> values = {mine.gradient_square, mine.loss, mine.labels, mine.positions, mine.samples};
  values.insert(values.end(), mine.checkpoint.begin(), mine.checkpoint.end());
  all_reduce_now(group, values.data(), values.size(), DType::kF64, ReduceOp::kSum, timeout_s);
  StepSums sums{values[0], values[1], values[2], values[3], values[4], {}};
  std::copy(values.begin() + 5, values.end(), sums.checkpoint.begin());
  return sums;
}

}  // namespace mso
