// TensorBoard event files (tfevents) of a run's scalars: TFRecord framing and the few protobuf fields they
// need.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/metrics.h"

namespace mso {

// CRC-32C (Castagnoli) and TFRecord's mask of it (tensorflow/core/lib/hash/crc32c.h).
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);
// length (8 bytes, little-endian), masked crc of it, payload, masked crc of the payload.
std::string tfrecord(std::string_view payload);

// Serialised tensorflow.Event messages (tensorflow/core/util/event.proto).
std::string event_file_version(double wall_time);
std::string event_session_start(double wall_time, int64_t step);
std::string event_scalars(double wall_time, int64_t step,
                          const std::vector<std::pair<std::string_view, double>>& scalars);

// One file per attempt in `folder` (made when missing). Tags: train/loss, train/grad_norm, train/lr,
// perf/tokens_per_s, perf/data_wait (share 0..1), eval/loss. A resumed attempt (`finished_steps` > 0) begins
// with SessionLog START, on which TensorBoard drops what earlier files have from step finished_steps + 1 on,
// so that repeated steps show once. Each step is one write(2). Storage trouble never throws: logged once,
// then no more is written to the file. Not thread-safe.
class TensorBoardWriter {
 public:
  TensorBoardWriter(const std::filesystem::path& folder, int attempt, int64_t finished_steps);
  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  bool ok() const { return fd_.valid(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  void append(const std::string& event);
  std::filesystem::path path_;
  FileDescriptor fd_;
};

}  // namespace mso
