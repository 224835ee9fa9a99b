#include "record/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace mso {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

template <typename T>
std::string little_endian(T value) {
  std::string bytes(sizeof value, '\0');
  for (size_t i = 0; i < sizeof value; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

// Protocol buffers' wire format: a key (field number, wire type), then the value.
void varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void put_int(std::string& out, int field, uint64_t value) {
  varint(out, static_cast<uint64_t>(field) << 3);
  varint(out, value);
}
void put_double(std::string& out, int field, double value) {
  varint(out, static_cast<uint64_t>(field) << 3 | 1);
  out += little_endian(std::bit_cast<uint64_t>(value));
}
void put_bytes(std::string& out, int field, std::string_view value) {
  varint(out, static_cast<uint64_t>(field) << 3 | 2);
  varint(out, value.size());
  out += value;
}
void put_float(std::string& out, int field, float value) {
  varint(out, static_cast<uint64_t>(field) << 3 | 5);
  out += little_endian(std::bit_cast<uint32_t>(value));
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::string event(double wall_time, int64_t step) {
  std::string out;
  put_double(out, 1, wall_time);
  if (step != 0) put_int(out, 2, static_cast<uint64_t>(step));
  return out;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (unsigned char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ byte) & 0xff];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string tfrecord(std::string_view payload) {
  std::string length = little_endian(static_cast<uint64_t>(payload.size()));
  std::string out = length + little_endian(masked_crc32c(length));
  out += payload;
  return out + little_endian(masked_crc32c(payload));
}

std::string event_file_version(double wall_time) {
  std::string out = event(wall_time, 0);
  put_bytes(out, 3, "brain.Event:2");
  return out;
}

std::string event_session_start(double wall_time, int64_t step) {
  std::string out = event(wall_time, step), session;
  put_int(session, 1, 1);  // SessionLog.status = START
  put_bytes(out, 7, session);
  return out;
}

std::string event_scalars(double wall_time, int64_t step,
                          const std::vector<std::pair<std::string_view, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string one;  // Summary.Value: tag = 1, simple_value = 2
    put_bytes(one, 1, tag);
    put_float(one, 2, static_cast<float>(value));
    put_bytes(summary, 1, one);
  }
  std::string out = event(wall_time, step);
  put_bytes(out, 5, summary);
  return out;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, int attempt,
                                     int64_t finished_steps) {
  double now = MetricsWriter::now();
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  // TensorBoard reads a folder's files in the order of their names, so the time stands first and has fixed
  // width.
  char name[400];
  std::snprintf(name, sizeof name, "events.out.tfevents.%010lld.%.200s.%05d", static_cast<long long>(now),
                host, attempt);
  path_ = folder / name;
  try {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    fd_ = open_file(path_, O_WRONLY | O_APPEND | O_CREAT);
  } catch (const Error& error) {
    log_warn("training goes on without TensorBoard files: {}", error.what());
    return;
  }
  std::string head = tfrecord(event_file_version(now));
  if (finished_steps > 0) head += tfrecord(event_session_start(now, finished_steps + 1));
  append(head);
}

void TensorBoardWriter::append(const std::string& bytes) {
  if (!fd_.valid()) return;
  ssize_t n;
  do {
    n = ::write(fd_.get(), bytes.data(), bytes.size());
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(bytes.size())) return;
  // A part of a record at the end is what a killed writer leaves, too; readers stop before it.
  log_warn("no more is written to {}: {}", path_.string(), n < 0 ? std::strerror(errno) : "no space left");
  fd_.reset();
}

void TensorBoardWriter::step(const StepRecord& r) {
  std::vector<std::pair<std::string_view, double>> scalars = {
      {"train/loss", r.loss}, {"train/grad_norm", r.grad_norm}, {"train/lr", r.lr}};
  if (r.step_s > 0) {
    scalars.emplace_back("perf/tokens_per_s", static_cast<double>(r.tokens) / r.step_s);
    scalars.emplace_back("perf/data_wait", r.data_wait_s / r.step_s);
  }
  append(tfrecord(event_scalars(r.time > 0 ? r.time : MetricsWriter::now(), r.step, scalars)));
}

void TensorBoardWriter::eval(const EvalRecord& r) {
  append(
      tfrecord(event_scalars(r.time > 0 ? r.time : MetricsWriter::now(), r.step, {{"eval/loss", r.loss}})));
}

}  // namespace mso
