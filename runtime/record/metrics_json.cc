// Records to JSON lines and back. Written by hand (to_chars) so that the digits are the same in every locale.
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "record/metrics.h"

namespace mso {
namespace {

class Line {
 public:
  explicit Line(std::string_view type) {
    text_ = "{\"type\":\"";
    text_ += type;
    text_ += '"';
  }
  Line& number(const char* key, double value, int digits) {
    name(key);
    if (std::isnan(value)) {
      text_ += "\"nan\"";
    } else if (std::isinf(value)) {
      text_ += value > 0 ? "\"inf\"" : "\"-inf\"";
    } else {
      char buffer[40];
      auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, digits).ptr;
      text_.append(buffer, end);
      if (value == 0 && std::signbit(value)) text_ += ".0";  // "-0" would read back as the integer 0
    }
    return *this;
  }
  // Seconds and the like: microseconds are enough.
  Line& time(const char* key, double value) {
    if (!std::isfinite(value) || std::fabs(value) > 1e15) return number(key, value, 17);
    name(key);
    char buffer[64];
    auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, 6).ptr;
    while (end[-1] == '0') --end;
    if (end[-1] == '.') --end;
    text_.append(buffer, end);
    return *this;
  }
  Line& integer(const char* key, int64_t value) {
    name(key);
    text_ += std::to_string(value);
    return *this;
  }
  Line& boolean(const char* key, bool value) {
    name(key);
    text_ += value ? "true" : "false";
    return *this;
  }
  Line& string(const char* key, const std::string& value) {
    name(key);
    text_ += nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return *this;
  }
  std::string end() { return text_ + '}'; }

 private:
  void name(const char* key) {
    text_ += ",\"";
    text_ += key;
    text_ += "\":";
  }
  std::string text_;
};

using Json = nlohmann::json;

double get_double(const Json& object, const char* key, double otherwise) {
  auto it = object.find(key);
  if (it == object.end()) return otherwise;
  if (it->is_number()) return it->get<double>();
  if (it->is_string()) {
    const std::string& text = it->get_ref<const std::string&>();
    if (text == "nan") return kNotANumber;
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
  }
  return otherwise;
}

int64_t get_integer(const Json& object, const char* key, int64_t otherwise) {
  auto it = object.find(key);
  if (it == object.end() || !it->is_number()) return otherwise;
  if (it->is_number_unsigned() && it->get<uint64_t>() > INT64_MAX) return otherwise;
  if (it->is_number_integer()) return it->get<int64_t>();
  double value = it->get<double>();
  return std::fabs(value) < 9e18 ? static_cast<int64_t>(value) : otherwise;
}

int get_int(const Json& object, const char* key, int otherwise) {
  int64_t value = get_integer(object, key, otherwise);
  return value < INT32_MIN || value > INT32_MAX ? otherwise : static_cast<int>(value);
}

bool get_bool(const Json& object, const char* key, bool otherwise) {
  auto it = object.find(key);
  return it != object.end() && it->is_boolean() ? it->get<bool>() : otherwise;
}

std::string get_string(const Json& object, const char* key) {
  auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

}  // namespace

std::string to_json(const StartRecord& r) {
  return Line("start")
      .time("time", r.time)
      .integer("attempt", r.attempt)
      .integer("ranks", r.ranks)
      .integer("step", r.step)
      .integer("steps", r.steps)
      .string("run_id", r.run_id)
      .integer("parameters", r.parameters)
      .end();
}

std::string to_json(const StepRecord& r) {
  return Line("step")
      .time("time", r.time)
      .integer("step", r.step)
      .integer("attempt", r.attempt)
      .number("loss", r.loss, 17)
      .number("grad_norm", r.grad_norm, 17)
      .number("lr", r.lr, 9)
      .integer("tokens", r.tokens)
      .integer("label_tokens", r.label_tokens)
      .integer("samples", r.samples)
      .string("sample_digest", r.sample_digest)
      .time("step_s", r.step_s)
      .time("data_wait_s", r.data_wait_s)
      .time("snapshot_stall_s", r.snapshot_stall_s)
      .end();
}

std::string to_json(const EvalRecord& r) {
  return Line("eval")
      .time("time", r.time)
      .integer("step", r.step)
      .integer("attempt", r.attempt)
      .number("loss", r.loss, 17)
      .integer("label_tokens", r.label_tokens)
      .end();
}

std::string to_json(const SnapshotRecord& r) {
  return Line("snapshot")
      .time("time", r.time)
      .integer("attempt", r.attempt)
      .integer("level", r.level)
      .integer("step", r.step)
      .time("write_s", r.write_s)
      .integer("bytes", r.bytes)
      .boolean("ok", r.ok)
      .boolean("degraded", r.degraded)
      .string("error", r.error)
      .end();
}

std::string to_json(const ResumeRecord& r) {
  return Line("resume")
      .time("time", r.time)
      .integer("attempt", r.attempt)
      .integer("level", r.level)
      .integer("step", r.step)
      .string("source", r.source)
      .time("recovery_s", r.recovery_s)
      .integer("lost_steps", r.lost_steps)
      .end();
}

std::string to_json(const IncidentRecord& r) {
  return Line("incident")
      .time("time", r.time)
      .integer("attempt", r.attempt)
      .string("kind", r.kind)
      .string("message", r.message)
      .end();
}

std::string to_json(const StorageRecord& r) {
  return Line("storage")
      .time("time", r.time)
      .integer("step", r.step)
      .integer("attempt", r.attempt)
      .string("source", r.source)
      .string("state", r.state)
      .integer("reads", r.reads)
      .integer("bytes", r.bytes)
      .integer("errors", r.errors)
      .time("p50_ms", r.p50_ms)
      .time("p99_ms", r.p99_ms)
      .integer("cached", r.cached)
      .integer("missed", r.missed)
      .integer("elsewhere", r.elsewhere)
      .integer("given_up", r.given_up)
      .integer("cache_bytes", r.cache_bytes)
      .integer("cache_fills", r.cache_fills)
      .end();
}

std::string to_json(const DataRecord& r) {
  return Line("data")
      .time("time", r.time)
      .integer("step", r.step)
      .integer("attempt", r.attempt)
      .string("modality", r.modality)
      .integer("samples", r.samples)
      .integer("deferred", r.deferred)
      .integer("waits", r.waits)
      .time("decode_s", r.decode_s)
      .integer("depth", r.depth)
      .integer("ready", r.ready)
      .integer("memory_share", r.memory_share)
      .integer("memory_used", r.memory_used)
      .integer("memory_borrowed", r.memory_borrowed)
      .integer("memory_peak", r.memory_peak)
      .time("fragmentation", r.fragmentation)
      .integer("compactions", r.compactions)
      .integer("compacted_bytes", r.compacted_bytes)
      .integer("overflow_bytes", r.overflow_bytes)
      .end();
}

std::string to_json(const EndRecord& r) {
  return Line("end")
      .time("time", r.time)
      .integer("attempt", r.attempt)
      .integer("step", r.step)
      .integer("exit_code", r.exit_code)
      .string("message", r.message)
      .end();
}

bool is_json(std::string_view line) { return Json::accept(line.begin(), line.end()); }

bool parse_record(std::string_view line, Record& record) {
  Json object = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return false;
  std::string type = get_string(object, "type");
  double time = get_double(object, "time", 0);
  int attempt = get_int(object, "attempt", 0);
  int64_t step = get_integer(object, "step", -1);
  if (type == "step" && step >= 0) {
    StepRecord r;
    r.time = time, r.step = step, r.attempt = attempt;
    r.loss = get_double(object, "loss", r.loss);
    r.grad_norm = get_double(object, "grad_norm", r.grad_norm);
    r.lr = get_double(object, "lr", r.lr);
    r.tokens = get_integer(object, "tokens", 0);
    r.label_tokens = get_integer(object, "label_tokens", 0);
    r.samples = get_integer(object, "samples", 0);
    r.sample_digest = get_string(object, "sample_digest");
    r.step_s = get_double(object, "step_s", 0);
    r.data_wait_s = get_double(object, "data_wait_s", 0);
    r.snapshot_stall_s = get_double(object, "snapshot_stall_s", 0);
    record = std::move(r);
  } else if (type == "start") {
    record = StartRecord{time,
                         attempt,
                         get_int(object, "ranks", 0),
                         std::max<int64_t>(step, 0),
                         get_integer(object, "steps", 0),
                         get_string(object, "run_id"),
                         get_integer(object, "parameters", 0)};
  } else if (type == "eval" && step >= 0) {
    record = EvalRecord{time, step, attempt, get_double(object, "loss", kNotANumber),
                        get_integer(object, "label_tokens", 0)};
  } else if (type == "snapshot") {
    record = SnapshotRecord{time,
                            attempt,
                            get_int(object, "level", 0),
                            step,
                            get_double(object, "write_s", 0),
                            get_integer(object, "bytes", 0),
                            get_bool(object, "ok", true),
                            get_bool(object, "degraded", false),
                            get_string(object, "error")};
  } else if (type == "resume") {
    record = ResumeRecord{time,
                          attempt,
                          get_int(object, "level", 0),
                          step,
                          get_string(object, "source"),
                          get_double(object, "recovery_s", 0),
                          get_integer(object, "lost_steps", 0)};
  } else if (type == "incident") {
    record = IncidentRecord{time, attempt, get_string(object, "kind"), get_string(object, "message")};
  } else if (type == "storage") {
    auto count = [&](const char* key) { return get_integer(object, key, 0); };
    record = StorageRecord{time,
                           step,
                           attempt,
                           get_string(object, "source"),
                           get_string(object, "state"),
                           count("reads"),
                           count("bytes"),
                           count("errors"),
                           get_double(object, "p50_ms", 0),
                           get_double(object, "p99_ms", 0),
                           count("cached"),
                           count("missed"),
                           count("elsewhere"),
                           count("given_up"),
                           count("cache_bytes"),
                           count("cache_fills")};
  } else if (type == "data") {
    auto count = [&](const char* key) { return get_integer(object, key, 0); };
    record = DataRecord{time,
                        step,
                        attempt,
                        get_string(object, "modality"),
                        count("samples"),
                        count("deferred"),
                        count("waits"),
                        get_double(object, "decode_s", 0),
                        count("depth"),
                        count("ready"),
                        count("memory_share"),
                        count("memory_used"),
                        count("memory_borrowed"),
                        count("memory_peak"),
                        get_double(object, "fragmentation", 0),
                        count("compactions"),
                        count("compacted_bytes"),
                        count("overflow_bytes")};
  } else if (type == "end") {
    record = EndRecord{time, attempt, std::max<int64_t>(step, 0), get_int(object, "exit_code", 0),
                       get_string(object, "message")};
  } else {
    record = UnknownRecord{std::move(type), std::string(line)};
  }
  return true;
}

}  // namespace mso
