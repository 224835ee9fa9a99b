// Keys of one JSON object of a Hugging Face configuration, read so that every complaint names file and key.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace mso {

// `object` must outlive it. A key that is absent or null keeps the value it is read into.
class ConfigKeys {
 public:
  // `part`: what the object describes, for messages ("image processor").
  ConfigKeys(const nlohmann::json& object, std::string part, std::string origin)
      : object_(object), part_(std::move(part)), origin_(std::move(origin)) {
    if (!object_.is_object()) refuse("a JSON object is expected");
  }

  const std::string& origin() const { return origin_; }

  const nlohmann::json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  [[noreturn]] void refuse(const std::string& what, const std::string& hint = "") const {
    throw Error(part_ + ": " + what, origin_, hint, ExitCode::kBadUsage);
  }
  [[noreturn]] void wrong(const char* key, const std::string& expected) const {
    const auto it = object_.find(key);
    refuse(std::string(key) + " must be " + expected,
           it == object_.end() ? "it is missing" : "it is " + it->dump());
  }

  void read(const char* key, bool* value) const {
    if (const auto* j = find(key)) {
      if (!j->is_boolean()) wrong(key, "true or false");
      *value = j->get<bool>();
    }
  }
  void read(const char* key, double* value) const {
    if (const auto* j = find(key)) {
      if (!j->is_number() || !std::isfinite(j->get<double>())) wrong(key, "a number");
      *value = j->get<double>();
    }
  }
  void read(const char* key, std::string* value) const {
    if (const auto* j = find(key)) {
      if (!j->is_string()) wrong(key, "a string");
      *value = j->get<std::string>();
    }
  }
  // One number for all three, or three.
  void read(const char* key, std::array<double, 3>* value) const {
    const auto* j = find(key);
    if (!j) return;
    if (j->is_number()) {
      value->fill(j->get<double>());
      return;
    }
    if (!j->is_array() || j->size() != 3) wrong(key, "three numbers");
    for (size_t i = 0; i < 3; ++i) {
      if (!(*j)[i].is_number()) wrong(key, "three numbers");
      (*value)[i] = (*j)[i].get<double>();
    }
  }
  // A whole number of `from` … `to`; 2.0 counts as one.
  template <typename Integer>
  void read(const char* key, int64_t from, int64_t to, Integer* value) const {
    if (const auto* j = find(key)) *value = static_cast<Integer>(whole(key, *j, from, to));
  }
  int64_t whole(const char* key, const nlohmann::json& j, int64_t from, int64_t to) const {
    const bool fits = j.is_number_integer() || (j.is_number_float() && std::abs(j.get<double>()) < 0x1p53 &&
                                                j.get<double>() == std::floor(j.get<double>()));
    const bool unsigned_too_large = j.is_number_unsigned() && j.get<uint64_t>() > uint64_t{INT64_MAX};
    if (!fits || unsigned_too_large || j.get<int64_t>() < from || j.get<int64_t>() > to)
      wrong(key, "a whole number from " + std::to_string(from) + " to " + std::to_string(to));
    return j.get<int64_t>();
  }

 private:
  const nlohmann::json& object_;
  std::string part_, origin_;
};

}  // namespace mso
