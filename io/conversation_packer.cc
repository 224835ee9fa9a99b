#include "io/conversation_packer.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "io/conversation_index.h"
#include "io/image.h"
#include "io/pack_target.h"
#include "io/utf8.h"

namespace mso {
namespace {

namespace fs = std::filesystem;
using Members = std::vector<std::pair<std::string, std::string>>;  // extension, content
constexpr uint64_t kMaxMedium = uint64_t{2} << 30;

// A sample ready to be written, or why it is left out.
struct Prepared {
  std::string key, reason, failure;
  Members members;
  std::map<std::string, uint64_t> media;
};

std::string extension_of(const std::string& file) {
  std::string extension = fs::path(file).extension().string();
  if (extension.size() < 2 || extension.size() > 9) return {};
  extension = lower_ascii(extension.substr(1));
  for (char c : extension)
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) return {};
  return extension == "json" || extension == "txt" ? std::string() : extension;
}

void check_picture(const std::string& file, const std::string& name) {
  decode_image({reinterpret_cast<const std::byte*>(file.data()), file.size()}, name, {.exact = false});
}

Prepared prepare(const ConversationFile& conversations, const fs::path& folder, uint64_t i) {
  Prepared sample;
  try {
    const ConversationEntry entry = conversations.read(i);
    const std::vector<MediumRef> media = entry.conversation.media();
    const std::vector<std::string> names = member_names(media);
    auto refuse = [&](const char* reason, const std::string& what) {
      return BadSampleError(reason, entry.conversation.where + ": " + what);
    };
    sample.members.emplace_back("json", with_files(entry, names));
    for (size_t k = 0; k < media.size(); ++k) {
      std::string bytes;
      try {
        const fs::path path = media_path(folder, media[k].file);
        std::error_code error;
        if (!fs::is_regular_file(path, error)) throw refuse("missing_file", "there is no file " + path.string());
        bytes = read_file(path, kMaxMedium);
        if (bytes.empty()) throw refuse("decode_error", path.string() + " has 0 bytes");
        if (media[k].kind == MediaKind::kImage) check_picture(bytes, path.string());
      } catch (const BadSampleError& error) {
        throw error.detail().starts_with(entry.conversation.where) ? error : refuse(error.reason().c_str(), error.detail());
      } catch (const Error& error) {
        throw refuse("decode_error", error.what());
      }
      sample.members.emplace_back(names[k], std::move(bytes));
      ++sample.media[media_name(media[k].kind)];
    }
  } catch (const BadSampleError& error) {
    sample.members.clear();
    sample.reason = error.reason();
    sample.failure = error.detail();
  }
  return sample;
}

// Prepares `count` samples in parallel, a few ahead of what is written, and writes them in order.
template <typename Prepare, typename Key>
ConversationPackSummary pack(uint64_t count, const fs::path& out, const ConversationPackOptions& options, const std::string& source,
                             const std::function<void(uint64_t, uint64_t)>& progress, Prepare&& prepare_one, Key&& key_of) {
  PackTarget target(out, options.limits);
  ShardWriter& writer = target.writer();
  ConversationPackSummary summary;
  const KeyedPermutation permutation(count, kPackShuffleKey);
  const size_t threads = pack_threads(options.threads), block = threads * 8;
  for (uint64_t start = 0; start < count; start += block) {
    const auto now = static_cast<size_t>(std::min<uint64_t>(block, count - start));
    std::vector<Prepared> prepared(now);
    std::vector<std::exception_ptr> failures(now);
    std::atomic<size_t> next = 0;
    {
      std::vector<std::jthread> workers;
      for (size_t t = 0; t < std::min(threads, now); ++t)
        workers.emplace_back([&] {
          for (size_t i; (i = next++) < now;) {
            const uint64_t which = options.shuffle ? permutation(start + i) : start + i;
            try {
              prepared[i] = prepare_one(which);
              prepared[i].key = key_of(which);
            } catch (...) {
              failures[i] = std::current_exception();
            }
          }
        });
    }
    for (size_t i = 0; i < now; ++i) {
      if (failures[i]) std::rethrow_exception(failures[i]);
      Prepared& sample = prepared[i];
      if (!sample.reason.empty()) {
        summary.skipped[sample.reason].push_back(std::move(sample.failure));
        continue;
      }
      if (sample.key.empty()) {
        char key[24];
        std::snprintf(key, sizeof key, "%09llu", static_cast<unsigned long long>(writer.samples()));
        sample.key = key;
      }
      writer.add(sample.key, sample.members);
      for (const auto& [kind, members] : sample.media) summary.media[kind] += members;
      sample.members = {};
    }
    if (progress) progress(start + now, count);
  }
  for (auto& [reason, what] : summary.skipped) std::sort(what.begin(), what.end());
  if (writer.samples() == 0) {
    std::string first;
    for (const auto& [reason, what] : summary.skipped)
      if (first.empty()) first = reason + ": " + what.front();
    throw Error("nothing could be packed", source + (first.empty() ? " is empty" : ": all entries are bad, among them " + first), "",
                ExitCode::kBadData);
  }
  nlohmann::ordered_json before = nlohmann::ordered_json::object(), after = nlohmann::ordered_json::object();
  for (const auto& [kind, members] : summary.media) before["media"][kind] = members;
  for (const auto& [reason, what] : summary.skipped) after["skipped"][reason] = what.size();
  target.publish(before, after);
  summary.samples = writer.samples();
  summary.shards = writer.shards();
  summary.bytes = writer.bytes();
  return summary;
}

}  // namespace

std::vector<std::string> member_names(const std::vector<MediumRef>& media) {
  std::vector<std::string> names;
  std::map<MediaKind, size_t> counts;
  std::set<std::string> taken = {"json", "txt"};
  for (const MediumRef& medium : media) {
    const std::string kind = media_name(medium.kind), extension = extension_of(medium.file);
    const size_t number = counts[medium.kind]++;
    std::string name = extension.empty() ? kind : extension;
    if (number > 0) name = kind + std::to_string(number) + (extension.empty() ? "" : "." + extension);
    if (!taken.insert(name).second) {
      name = kind + std::to_string(number) + (extension.empty() ? "" : "." + extension);
      taken.insert(name);
    }
    names.push_back(std::move(name));
  }
  return names;
}

fs::path media_path(const fs::path& folder, const std::string& file) {
  std::string_view name = file;
  if (name.starts_with("file://")) {
    name.remove_prefix(7);
  } else if (const size_t scheme = name.find("://"); scheme != std::string_view::npos && scheme < 12 && name.find('/') > scheme) {
    throw BadSampleError("web_address", "'" + file.substr(0, 200) + "' is an address, not a file");
  }
  const fs::path root = fs::absolute(folder).lexically_normal(), path = (root / fs::path(name)).lexically_normal();
  const fs::path inside = path.lexically_relative(root);
  if (inside.empty() || *inside.begin() == "..")
    throw BadSampleError("outside_folder", "'" + file.substr(0, 200) + "' lies outside of the media folder " + root.string());
  return path;
}

ConversationPackSummary pack_conversations(const fs::path& conversations, const fs::path& out, const ConversationPackOptions& options,
                                           const std::function<void(uint64_t, uint64_t)>& progress) {
  const ConversationFile file = ConversationFile::open(conversations);
  fs::path folder = options.media.empty() ? conversations.parent_path() : options.media;
  if (folder.empty()) folder = ".";
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error("no such folder of media", folder.string(), "--media names the folder that the files are relative to", ExitCode::kBadUsage);
  return pack(file.size(), out, options, conversations.string(), progress,
              [&](uint64_t i) { return prepare(file, folder, i); }, [](uint64_t) { return std::string(); });
}

}  // namespace mso
