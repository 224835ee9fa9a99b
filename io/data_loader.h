// What the trainer takes batches from: plans each step's global batch, reads and decodes this rank's samples ahead in
// worker threads, and hands out packed micro-batches.
//
// A step: open() waits for this rank's samples and tells which are bad or late; all ranks agree on these codes; decide()
// and settle() make of them which samples the step trains on; the ledger is written; take() packs this rank's part.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/buffer_pool.h"
#include "io/ledger.h"
#include "io/micro_batch.h"
#include "io/sample_assembler.h"
#include "io/sample_order.h"
#include "io/step_plan.h"

namespace mso {

// A healthy sample that may be trained on instead of a broken one.
struct StandIn {
  uint64_t id = 0;
  double similarity = 0;  // cosine
};
// Best first, at most three; empty: the sample is left out. Pure, the same on all ranks; called from several threads.
using FindStandIns = std::function<std::vector<StandIn>(uint64_t broken_id)>;

struct DataLoaderOptions {
  uint64_t seed = 0;
  uint64_t batch_samples = 1;          // N: train.global_batch_samples
  int rank = 0, ranks = 1;             // data-parallel
  MicroBatchLimits micro_batch;        // data.micro_batch_tokens, mdp.micro_batch.*.samples
  int threads = 0;                     // decoders of text, sound and pictures; 0: cores of this process / ranks on the node, at least 1
  int video_threads = 2;               // decoders of video, two at least, so that a slow one does not hold the others back
  int ranks_on_node = 1;               // for threads = 0
  PerModality<uint64_t> prefetch_depth;  // samples decoded ahead: io/prefetch_depth.h
  uint64_t memory_bytes = uint64_t{1} << 30;  // of decoded samples waiting; the step due next is decoded all the same
  std::vector<MemoryShare> memory_shares = default_batch_shares();  // one for each modality
  double timeout_s = 60;               // longest wait for a step's samples
  double defer_after_s = -1;           // mdp.defer_after_ms: how long a step waits for a late sample; negative: to the end
  PerModality<uint64_t> recipe;        // samples of each modality in a batch, Σ = N; all 0: as they come
  std::vector<MixturePart> mixture;    // empty: every sample as often as any other
  bool sequential = false;             // held-out samples: once, in order, no shuffling
  uint64_t max_samples = 0;            // sequential: at most so many (train.eval_samples); 0: all
  FindStandIns find_stand_ins;         // none: broken samples are left out
  std::map<uint64_t, std::string> known_bad;  // id → reason, found by `mso data verify`: not read at all
};

// A sample of this rank that could not be used.
struct BadSample {
  uint64_t id = 0;
  uint64_t index = 0;  // i in the step's batch, 0 … N-1
  std::string reason, detail;
};

// This rank's part of one step.
struct RankBatch {
  uint64_t step = 0;
  std::vector<MicroBatch> micro_batches;  // may be empty: every sample was bad, or fewer samples than ranks
  std::vector<BadSample> bad_samples;     // by increasing index; left out of micro_batches or replaced
  uint64_t samples = 0;                   // in micro_batches
  PerModality<uint64_t> media;            // files of each kind in micro_batches
  double wait_s = 0;                      // how long open() and await_late() had to wait

  // Gives the pixels' memory back to the loader, for the batches to come.
  RankBatch() = default;
  RankBatch(RankBatch&&) = default;
  RankBatch& operator=(RankBatch&& other) noexcept;
  ~RankBatch() { release(); }
  void release() noexcept;

 private:
  friend class DataLoader;
  std::shared_ptr<BufferPool> pool_;
};

// What all ranks agreed that a step trains on.
struct SettledStep {
  GlobalBatch batch;
  std::vector<uint8_t> fates;         // [N] fate_code() of each, 0 for good ones
  std::vector<StandIn> stand_ins;     // [N] what is trained on instead where replacement_of_fate() > 0
  struct Deferred {
    BatchItem item;
    std::optional<uint64_t> stand_in;  // position
  };
  std::vector<Deferred> deferred;
  std::vector<uint64_t> trained_ids() const;  // in order of positions, stand-ins in their places
};

// What a run goes on from.
struct LoaderPlace {
  uint64_t step = 0;
  // The order before `step`; nothing: from the ledger's deferrals since step 0.
  std::optional<OrderState> order;
  // Ledger entries of this and later steps from before a restart: these samples are reported with the same reason and
  // stand-in and not read again, and those deferred are deferred again, so that the replay equals the first run.
  std::vector<LedgerEntry> known;
  // Steps before this one were trained on already: nothing else is deferred in them.
  uint64_t replayed_until = 0;
};

// One thread calls start() … take(); the rest may be called from anywhere.
// The batches depend on (data set, seed, N, step, recipe, mixture) and the ledger, and on nothing else.
class DataLoader {
 public:
  DataLoader(std::shared_ptr<const SampleAssembler> assembler, DataLoaderOptions options);
  ~DataLoader();  // stops the threads; waits for them a few seconds at most
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // Begins (again) at a step.
  void start(LoaderPlace place);
  void start(uint64_t first_step, std::vector<LedgerEntry> known = {});

  // 1. The step after the last one. [candidates] codes of this rank's samples (fate_code(), kLate), 0 for those of others;
  // bitwise or joins the codes of all ranks. Error naming shard and sample when one that must be there is not within
  // timeout_s.
  std::vector<uint8_t> open();
  // 2. The agreed codes. True: some samples are waited for (by all ranks alike); then call await_late(), agree on its codes
  // in the same way, and settle() with these; else settle() with none.
  bool decide(const std::vector<uint8_t>& agreed);
  std::vector<uint8_t> await_late();
  const SettledStep& settle(const std::vector<uint8_t>& agreed_late = {});
  const SettledStep& settled() const;
  // 3. This rank's part, packed.
  RankBatch take();

  // All three for a loader that needs no agreement (one rank, or nothing to defer, as when evaluating).
  RankBatch next();

  // Pure; any step, as if nothing was ever late.
  GlobalBatch global_batch(uint64_t step) const;
  // Indices i into global_batch(step) that belong to `rank`.
  std::vector<size_t> samples_of_rank(uint64_t step, int rank) const;
  // Ledger lines of the settled step; details of bad samples where they are given (only the owners know them).
  std::vector<LedgerEntry> ledger_entries(const SettledStep& step, const std::vector<BadSample>& bad = {}) const;

  uint64_t steps_per_epoch() const;  // rounded up; for a sequential loader all its steps
  const SampleAssembler& assembler() const;
  const DataLoaderOptions& options() const;

  // Cumulative, for metrics.
  struct Counters {
    uint64_t samples = 0, pictures = 0, bad_samples = 0, cut_samples = 0, bytes_read = 0;
    double wait_s = 0;
    struct OfModality {
      uint64_t samples = 0, deferred = 0, waits = 0;  // deferred and waits: of steps, on this rank
      double decode_s = 0;                            // of worker threads
      uint64_t depth = 0, ready = 0;                  // now: the buffer's target and what is decoded in it
    };
    PerModality<OfModality> of;
  };
  Counters counters() const;
  BatchMemoryUse memory_use() const;  // parts in the order of the modalities

  // The loader's place before the step that comes next as a small JSON text (record "cursor" of a snapshot): step,
  // position, what was deferred, n, N, seed, fingerprint of the data set; and its check on resume: sentences on what does
  // not fit (other data, other seed, other N), or empty.
  std::string cursor() const;
  static uint64_t step_of_cursor(const std::string& cursor);
  static OrderState order_of_cursor(const std::string& cursor);
  std::vector<std::string> differences(const std::string& cursor) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the threads, so that one stuck in a read never blocks the end
};

}  // namespace mso
