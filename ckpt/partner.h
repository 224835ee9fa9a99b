// Partner copies of L0: who keeps whose, and the exchange itself.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/level0_store.h"
#include "comm/communicator.h"

namespace mso {

// result[r] is the rank that keeps a copy of rank r's L0 file. A permutation without fixed points (one rank:
// empty): every rank keeps exactly one copy, on another node for as many ranks as the nodes allow. Pure.
std::vector<int> choose_partners(const std::vector<std::string>& nodes);

struct ExchangeJob {
  int to = 0, from = 0;  // partner that keeps my copy; rank whose copy I keep
  int tag = 0;           // another one than the last exchange's, so that a broken one leaves nothing behind
  int own_fd = -1;       // my whole L0 file; -1: I have none, say so
  std::string own_path;
  std::string run_id;
  uint64_t step = 0;
  int64_t attempt = 0;
  int delta = 0;  // as in the file's header
  std::string_view kill_prefix = "partner";
  double timeout_s = 60;            // longest silence of a peer
  std::function<bool()> cancelled;  // polled while waiting
  // Opens the file for the incoming copy; may throw: the copy is then received and thrown away.
  std::function<GenerationFile()> open_copy;
  std::function<void(GenerationFile&)> publish_copy;
};

// Both directions at once, in pieces; every rank of the ring takes part whatever happened to its own file.
// The copy is verified against its checksum on the way. Returns "" or what is wrong with the incoming copy.
// Error kPeerLost where a peer is silent for too long, kFailure where cancelled.
std::string exchange_copies(Communicator& group, const ExchangeJob& job);

}  // namespace mso
