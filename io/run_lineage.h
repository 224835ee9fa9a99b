// Where what a run was trained on came from: the order of its samples, its ledger and the sources in the index, joined.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "io/dataset.h"
#include "io/ledger.h"
#include "io/sample_order.h"

namespace mso {

// "text", "image", "video" and "audio" with the source that the index knows, for those of which the sample has files; ""
// where none is named. A .json beside media counts as text where it names a text source or holds a conversation.
struct SourceOfKind {
  const char* kind = "";
  uint8_t bit = 0;  // ModalityBit
  std::string_view source;
};
std::vector<SourceOfKind> sources_of(const ShardSample& sample);

struct LineageCounts {
  uint64_t trained = 0;  // times samples were trained on, in their place or as a stand-in
  uint64_t stood_in = 0;  // of these, in the stead of a broken one
  uint64_t replaced = 0, left_out = 0, deferred = 0;  // events of the ledger
};

struct RunLineage {
  uint64_t steps = 0;
  LineageCounts all;
  uint64_t waiting = 0;  // deferred and not trained on yet
  std::map<std::string, std::map<std::string, LineageCounts>> sources;  // kind → source
  std::map<std::string, LineageCounts> categories;                      // as the index knows them
};

// The first `steps` steps of `batch_samples` samples each. Ledger entries of later steps are not counted. Takes 8 bytes
// a sample. Error (kBadData) where the ledger names other samples than the order does.
RunLineage lineage_of_run(const Dataset& dataset, const SampleOrder& order, uint64_t steps, uint64_t batch_samples,
                          const std::vector<LedgerEntry>& ledger);
std::string to_text(const RunLineage& lineage);
nlohmann::ordered_json to_json(const RunLineage& lineage);
// Kinds of which a sample names a source, for what is shown.
std::vector<std::string> kinds_with_sources(const RunLineage& lineage);

}  // namespace mso
