// A value of a JSON file together with its path, so that every complaint says where: "FILE at /model/vocab:
// …".
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace mso {

class JsonNode {
 public:
  // `root` and `file` must outlive the node and all nodes made from it.
  JsonNode(const nlohmann::json& root, const std::string& file) : value_(&root), file_(&file) {}

  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const {
    throw Error(what, *file_ + " at " + (path_.empty() ? "/" : path_), hint, ExitCode::kBadUsage);
  }

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }
  // True for a member that is there and not null.
  bool has(const std::string& key) const {
    auto it = value_->find(key);
    return it != value_->end() && !it->is_null();
  }

  JsonNode operator[](const std::string& key) const {
    if (!value_->is_object()) fail("not a JSON object");
    auto it = value_->find(key);
    if (it == value_->end()) fail("the key '" + key + "' is missing");
    return JsonNode(*it, file_, path_ + "/" + key);
  }
  // Elements of an array.
  size_t size() const {
    if (!value_->is_array()) fail("not a JSON array");
    return value_->size();
  }
  JsonNode operator[](size_t i) const {
    if (i >= size()) fail("fewer than " + std::to_string(i + 1) + " elements");
    return JsonNode((*value_)[i], file_, path_ + "/" + std::to_string(i));
  }

  const std::string& string() const {
    if (!value_->is_string()) fail("not a string");
    return value_->get_ref<const std::string&>();
  }
  bool boolean(const std::string& key, bool otherwise) const {
    if (!value_->is_object() || !has(key)) return otherwise;
    JsonNode member = (*this)[key];
    if (!member.value_->is_boolean()) member.fail("neither true nor false");
    return member.value_->get<bool>();
  }
  // An integer of 0 … limit.
  int64_t integer(int64_t limit) const {
    if (!value_->is_number_unsigned() || value_->get<uint64_t>() > static_cast<uint64_t>(limit))
      fail("not an integer of 0 to " + std::to_string(limit));
    return value_->get<int64_t>();
  }

 private:
  JsonNode(const nlohmann::json& value, const std::string* file, std::string path)
      : value_(&value), file_(file), path_(std::move(path)) {}
  const nlohmann::json* value_;
  const std::string* file_;
  std::string path_;
};

}  // namespace mso
