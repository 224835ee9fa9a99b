// The exception for a sample that cannot be trained on.
#pragma once

#include <stdexcept>
#include <string>

namespace mso {

// `reason` is one word for the ledger, `detail` a sentence.
class BadSampleError : public std::runtime_error {
 public:
  BadSampleError(std::string reason, std::string detail)
      : std::runtime_error(reason + ": " + detail), reason_(std::move(reason)), detail_(std::move(detail)) {}
  const std::string& reason() const { return reason_; }
  const std::string& detail() const { return detail_; }

 private:
  std::string reason_, detail_;
};

}  // namespace mso
