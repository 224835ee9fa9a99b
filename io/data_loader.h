// What the trainer takes batches from: plans each step's global batch, reads and decodes this rank's samples ahead in
// worker threads, and hands out packed micro-batches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/ledger.h"
#include "io/micro_batch.h"
#include "io/sample_assembler.h"
#include "io/sample_order.h"

namespace mso {

struct DataLoaderOptions {
  uint64_t seed = 0;
  uint64_t batch_samples = 1;          // N: train.global_batch_samples
  int rank = 0, ranks = 1;             // data-parallel
  int64_t micro_batch_tokens = 4096;   // data.micro_batch_tokens
  int threads = 0;                     // decoders of this rank; 0: cores of this process / ranks on the node, at least 1
  int ranks_on_node = 1;               // for threads = 0
  uint64_t prefetch_steps = 4;         // steps decoded ahead of the one being trained
  uint64_t memory_bytes = uint64_t{1} << 30;  // of decoded samples waiting; the step due next is decoded all the same
  double timeout_s = 60;               // longest wait of next() for its step
  bool sequential = false;             // held-out samples: once, in order, no shuffling
  uint64_t max_samples = 0;            // sequential: at most so many (train.eval_samples); 0: all
};

// A sample of this rank that could not be used.
struct BadSample {
  uint64_t id = 0;
  uint64_t index = 0;  // i in the global batch, 0 … N-1: the bit in the agreement bitmap
  std::string reason, detail;
};

// This rank's part of one step.
struct RankBatch {
  uint64_t step = 0;
  std::vector<MicroBatch> micro_batches;  // may be empty: every sample was bad, or fewer samples than ranks
  std::vector<BadSample> bad_samples;     // by increasing index; not contained in micro_batches
  uint64_t samples = 0;                   // in micro_batches
  double wait_s = 0;                      // how long next() had to wait

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

// One thread calls start() and next(); the rest may be called from anywhere.
// The batches depend on (data set, seed, N, ranks, rank, step, bad samples) and on nothing else.
class DataLoader {
 public:
  DataLoader(std::shared_ptr<const SampleAssembler> assembler, DataLoaderOptions options);
  ~DataLoader();  // stops the threads; waits for them a few seconds at most
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // Begins (again) at a step. `known_bad`: ledger entries of this and later steps from before a restart; these samples
  // are reported as bad with the same reason and not read again, so that the replay equals the first run.
  void start(uint64_t first_step, const std::vector<LedgerEntry>& known_bad = {});

  // The step after the last one handed out. Error naming shard and sample when it is not there within timeout_s.
  RankBatch next();

  // Pure; any step.
  GlobalBatch global_batch(uint64_t step) const;
  // Indices i into global_batch(step).ids that belong to `rank`.
  std::vector<size_t> samples_of_rank(const GlobalBatch& batch, int rank) const;
  // For the agreement of all ranks: [N] bytes, 0 for good samples and for those of other ranks, else reason_code();
  // the maximum over ranks is the agreed set.
  std::vector<uint8_t> bad_codes(const RankBatch& batch) const;
  // Ledger lines of a step from the agreed codes [N]; details of this rank's own bad samples where it has them (the
  // log of the owning rank has the others).
  std::vector<LedgerEntry> ledger_entries(const GlobalBatch& batch, const std::vector<uint8_t>& agreed_codes,
                                          const std::vector<BadSample>& own = {}) const;

  uint64_t steps_per_epoch() const;  // rounded up; for a sequential loader all its steps
  const SampleAssembler& assembler() const;
  const DataLoaderOptions& options() const;

  // Cumulative, for metrics.
  struct Counters {
    uint64_t samples = 0, pictures = 0, bad_samples = 0, cut_samples = 0, bytes_read = 0;
    double wait_s = 0;
  };
  Counters counters() const;

  // The loader's place as a small JSON text (record "cursor" of a snapshot): step, position, n, N, seed, fingerprint of
  // the data set; and its check on resume: sentences on what does not fit (other data, other seed, other N), or empty.
  std::string cursor(uint64_t next_step) const;
  static uint64_t step_of_cursor(const std::string& cursor);
  std::vector<std::string> differences(const std::string& cursor) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the threads, so that one stuck in a read never blocks the end
};

}  // namespace mso
