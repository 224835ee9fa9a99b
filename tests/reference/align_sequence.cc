// Reads alignments as JSON lines {"rule": {"length", "method", "value", "max_stretch", "longer", "side"}, "shape", "values"}
// and prints the aligned values, one JSON array a line.
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/sequence_alignment.h"

int main() {
  using nlohmann::json;
  for (std::string text; std::getline(std::cin, text);) {
    const json line = json::parse(text), given = line["rule"];
    mso::AlignmentRule rule;
    rule.length = given["length"];
    rule.method = mso::alignment_method(given["method"].get<std::string>(), "method");
    rule.value = given["value"];
    rule.max_stretch = given["max_stretch"];
    rule.longer = given["longer"] == "fit" ? mso::AlignmentRule::Longer::kFit : mso::AlignmentRule::Longer::kTruncate;
    rule.side = given["side"] == "left" ? mso::AlignmentRule::Side::kLeft : mso::AlignmentRule::Side::kRight;
    mso::HostTensor in = mso::HostTensor::make(mso::DType::kF32, line["shape"].get<std::vector<int64_t>>());
    const auto values = line["values"].get<std::vector<float>>();
    std::copy(values.begin(), values.end(), in.data<float>());
    const mso::HostTensor out = mso::align_sequence(in, rule);
    std::cout << json(std::vector<float>(out.data<float>(), out.data<float>() + out.bytes.size() / sizeof(float))).dump() << "\n";
  }
}
