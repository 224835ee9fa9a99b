// mso data: pack pictures into shards and list what they hold; index, verify, bench and others
// have files of their own (data_tools.h).
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cmd/command.h"
#include "cmd/data_tools.h"
#include "cmd/progress_line.h"
#include "io/conversation_packer.h"
#include "io/shard_packer.h"

namespace mso {
namespace {

struct PackArguments {
  std::string source, out, media, captions = "all";
  std::vector<std::string> also;
  double shard_size_mb = 256;
  bool sorted = false;
  PackOptions options;
};

bool holds_shards(const std::filesystem::path& source) {
  std::error_code error;
  if (source.extension() == ".tar") return true;
  for (std::filesystem::directory_iterator it(source, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".tar") return true;
  return false;
}

// Tars packed anew.
int run_repack(const PackArguments& arguments) {
  std::vector<std::string> sources = {arguments.source};
  sources.insert(sources.end(), arguments.also.begin(), arguments.also.end());
  const PackSummary summary = repack_shards(sources, arguments.out, arguments.options, progress_line("packing sample"));
  std::cout << "packed " << summary.samples << " samples into " << summary.shards << (summary.shards == 1 ? " shard" : " shards")
            << " (" << summary.bytes << " bytes) in " << arguments.out << "\n";
  for (const auto& [reason, samples] : summary.skipped) {
    std::cout << "skipped: " << samples.size() << " " << reason << "\n";
    for (size_t i = 0; i < samples.size() && i < 5; ++i) std::cout << "  " << samples[i] << "\n";
    if (samples.size() > 5) std::cout << "  and " << samples.size() - 5 << " more\n";
  }
  return 0;
}

// A file of conversations and the media it names.
int run_pack_conversations(const PackArguments& arguments) {
  ConversationPackOptions options;
  options.limits = arguments.options.limits;
  options.media = arguments.media;
  options.threads = arguments.options.threads;
  options.shuffle = !arguments.sorted;
  const ConversationPackSummary summary =
      pack_conversations(arguments.source, arguments.out, options, progress_line("packing conversation"));
  std::cout << "packed " << summary.samples << " conversations into " << summary.shards
            << (summary.shards == 1 ? " shard" : " shards") << " (" << summary.bytes << " bytes) in " << arguments.out << "\n";
  for (const auto& [kind, count] : summary.media) std::cout << kind << (kind == "audio" ? ": " : "s: ") << count << "\n";
  for (const auto& [reason, what] : summary.skipped) {
    std::cout << "skipped: " << what.size() << " " << reason << "\n";
    for (size_t i = 0; i < what.size() && i < 5; ++i) std::cout << "  " << what[i] << "\n";
    if (what.size() > 5) std::cout << "  and " << what.size() - 5 << " more\n";
  }
  return 0;
}

int run_pack(PackArguments& arguments) {
  PackOptions& options = arguments.options;
  options.limits.bytes = static_cast<uint64_t>(std::max(0.0, arguments.shard_size_mb) * 1e6);
  options.all_captions = arguments.captions == "all";
  options.shuffle = !arguments.sorted;
  if (holds_shards(arguments.source)) return run_repack(arguments);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(arguments.source, ignored)) return run_pack_conversations(arguments);
  if (!arguments.also.empty())
    throw Error("several sources are packed from shards alone", "--also " + arguments.also.front(),
                "pack each folder of pictures by itself, then the results into one", ExitCode::kBadUsage);
  const PackSummary summary = pack_folder(arguments.source, arguments.out, options, progress_line("packing picture"));
  std::cout << "packed " << summary.samples << " samples of " << summary.pictures << " pictures into " << summary.shards
            << (summary.shards == 1 ? " shard" : " shards") << " (" << summary.bytes << " bytes) in " << arguments.out
            << "\n"
            << "with a spoken caption: " << summary.with_speech << "\n";
  if (options.every_language) std::cout << "languages: " << summary.languages.size() << "\n";
  const std::map<std::string, const char*> words = {
      {"svg", "vector pictures (.svg)"},
      {"no_caption", "pictures without a .txt"},
      {"bad_caption", "pictures whose caption is empty or not UTF-8"},
      {"same_stem", "pictures beside one of the same name"},
      {"decode_error", "pictures that cannot be decoded"},
  };
  for (const auto& [reason, paths] : summary.skipped) {
    std::cout << "skipped: " << paths.size() << " " << words.at(reason) << "\n";
    if (reason == "svg") continue;
    for (size_t i = 0; i < paths.size() && i < 5; ++i) std::cout << "  " << paths[i] << "\n";
    if (paths.size() > 5) std::cout << "  and " << paths.size() - 5 << " more\n";
  }
  return 0;
}

// What the index knows of a video, sound or further picture.
nlohmann::ordered_json facts_json(const MediaFacts& facts, std::string_view extension) {
  nlohmann::ordered_json json = {{"file", extension},
                                 {"kind", facts.kind == kHasVideo ? "video" : facts.kind == kHasAudio ? "sound" : "picture"}};
  if (facts.flags & kMediaUnreadable) {
    json["unreadable"] = true;
    return json;
  }
  json["codec"] = facts.codec;
  if (facts.kind != kHasImage && facts.duration_us > 0) json["seconds"] = static_cast<double>(facts.duration_us) / 1e6;
  if (facts.kind == kHasAudio) {
    json["sample_rate"] = facts.sample_rate;
    json["channels"] = facts.channels;
  } else {
    json["size"] = {facts.width, facts.height};
  }
  if (facts.kind == kHasVideo) {
    if (facts.frames > 0) json["frames"] = facts.frames;
    json["frames_per_second"] = facts.millihertz / 1e3;
    if (facts.rotation) json["rotation"] = facts.rotation;
    if (facts.flags & kMediaWithSound) json["with_sound"] = true;
  }
  if (facts.flags & kMediaCut) json["cut"] = true;
  if (facts.flags & kMediaNotCounted) json["not_counted"] = true;
  return json;
}

// One JSON object a line for each sample, as the index knows it.
int run_ls(const DataPaths& paths) {
  const auto dataset = paths.open();
  for (uint64_t id = 0; id < dataset->size(); ++id) {
    const ShardSample& sample = dataset->sample(id);
    nlohmann::ordered_json json = {{"id", id},
                                   {"shard", dataset->shard_path(dataset->locate(id).shard).filename().string()},
                                   {"key", sample.key}};
    for (const ShardMember& member : sample.members)
      json["members"][std::string(member.extension)] = {{"offset", member.offset}, {"size", member.size}};
    if (sample.picture_width > 0) json["picture"] = {sample.picture_width, sample.picture_height};
    for (const MediaFacts& facts : sample.media)
      json["media"].push_back(facts_json(facts, sample.members[facts.member].extension));
    if (sample.find("txt")) json["characters"] = sample.text_code_points;
    if (sample.flags & kSampleMerged) json["not_adjacent"] = true;
    const std::string reason = dataset->unusable_reason(id);
    if (!reason.empty()) json["unusable"] = reason;
    std::cout << json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  }
  return 0;
}

}  // namespace

Command data_command() {
  Command command;
  command.name = "data";
  command.summary = "pack, index and check training data";
  command.setup = [](CLI::App& app) -> std::function<int()> {
    auto chosen = std::make_shared<std::function<int()>>();
    app.require_subcommand(1);
    app.footer(
        "\nExamples:\n"
        "  mso data pack /usr/share/tuxpaint/stamps shards --max-samples-per-shard 100\n"
        "  mso data index --embed shards\n"
        "  mso data stat shards --html stat.html\n"
        "  mso data verify shards --list bad.jsonl\n"
        "  mso data report runs/demo\n");

    auto pack = std::make_shared<PackArguments>();
    CLI::App* sub = app.add_subcommand("pack", "pack a folder of pictures with captions, or existing tars, into WebDataset shards");
    sub->footer(
        "\nExamples:\n"
        "  mso data pack /usr/share/tuxpaint/stamps shards --max-samples-per-shard 100\n"
        "  mso data pack old-shards shards --also more-shards\n");
    sub->add_option("SRC", pack->source, "folder: cat.png, cat.txt, and optionally cat_desc.ogg (spoken caption); or one of .tar files, or a .tar; or a .json or .jsonl of conversations")
        ->required();
    sub->add_option("OUT", pack->out, "folder to make, or one made by an earlier `mso data pack`")->required();
    sub->add_option("--media", pack->media, "folder the files of conversations are relative to (default: theirs)")->type_name("DIR");
    sub->add_option("--also", pack->also, "more shards to be packed into the same ones")->type_name("SRC");
    sub->add_option("--shard-size", pack->shard_size_mb, "a shard's size at most, in MB")
        ->check(CLI::Range(0.001, 1e6))
        ->capture_default_str();
    sub->add_option("--max-samples-per-shard", pack->options.limits.samples, "samples of a shard at most")
        ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 32))
        ->capture_default_str();
    sub->add_option("--quality", pack->options.quality, "JPEG quality, 1 to 100")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    sub->add_option("--threads", pack->options.threads, "threads, 0 for all cores")
        ->check(CLI::Range(0, kMostThreads))
        ->capture_default_str();
    sub->add_option("--captions", pack->captions, "captions kept in .json: en (English) or all languages")
        ->check(CLI::IsMember({"en", "all"}))
        ->capture_default_str();
    sub->add_flag("--every-language", pack->options.every_language,
                  "a sample of its own for each language's caption of a picture");
    sub->add_flag("--sorted", pack->sorted, "samples by path instead of in a fixed shuffled order");
    sub->callback([=] { *chosen = [=] { return run_pack(*pack); }; });

    add_data_index(app, chosen);
    add_data_stat(app, chosen);
    add_data_verify(app, chosen);
    add_data_bench(app, chosen);
    add_data_report(app, chosen);

    sub = app.add_subcommand("ls", "every sample of the index, one JSON object a line");
    sub->footer("\nExample:\n  mso data ls shards | grep unusable\n");
    auto paths = std::make_shared<DataPaths>();
    paths->add_to(*sub);
    sub->callback([=] { *chosen = [=] { return run_ls(*paths); }; });

    return [chosen] { return *chosen ? (*chosen)() : static_cast<int>(ExitCode::kBadUsage); };
  };
  return command;
}

}  // namespace mso
