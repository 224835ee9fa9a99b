// mso data: pack pictures into shards, list and count what they hold, and how fast they load; index, verify and others
// have files of their own (data_tools.h).
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cmd/command.h"
#include "cmd/data_tools.h"
#include "cmd/progress_line.h"
#include "io/conversation_packer.h"
#include "io/data_loader.h"
#include "io/picture_decoder.h"
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
    if (sample.find("txt")) json["characters"] = sample.text_code_points;
    if (sample.flags & kSampleMerged) json["not_adjacent"] = true;
    const std::string reason = dataset->unusable_reason(id);
    if (!reason.empty()) json["unusable"] = reason;
    std::cout << json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  }
  return 0;
}

struct BenchArguments {
  DataPaths paths;
  int image_size = 224, patch_size = 16, threads = 0;
  uint64_t batch = 32, epochs = 1;
  double seconds = 0;
  bool exact = false;
  std::string tokenizer = "bytes";
};

// Goes through the data as training does, without training: what the loader alone can deliver.
int run_bench(const BenchArguments& arguments) {
  std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(arguments.tokenizer);
  if (arguments.patch_size > arguments.image_size)
    throw Error("a patch is larger than the picture", "--patch-size " + std::to_string(arguments.patch_size),
                "at most --image-size, " + std::to_string(arguments.image_size), ExitCode::kBadUsage);
  const int64_t side = arguments.image_size / arguments.patch_size;
  AssemblerOptions options;
  options.image_token = tokenizer->token_id("<image>").value_or(-1);
  DataLoaderOptions loading;
  loading.batch_samples = arguments.batch;
  loading.threads = arguments.threads;
  const auto assembler = std::make_shared<const SampleAssembler>(
      arguments.paths.open(), tokenizer,
      make_picture_decoder(clip_image_processor(arguments.image_size), side * side, arguments.exact), options);
  DataLoader loader(assembler, loading);
  const auto begin = std::chrono::steady_clock::now();
  loader.start(0);
  uint64_t positions = 0;
  const uint64_t steps = loader.steps_per_epoch() * arguments.epochs;
  const auto progress = progress_line("loading step");
  auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  std::vector<std::string> incidents;
  Storage& storage = assembler->dataset().storage();
  for (uint64_t step = 0; step < steps && (arguments.seconds <= 0 || elapsed() < arguments.seconds); ++step) {
    for (const MicroBatch& batch : loader.next().micro_batches) positions += static_cast<uint64_t>(batch.size());
    for (const StorageEvent& event : storage.take_events()) incidents.push_back(event.kind);
    if (step % 16 == 0 || step + 1 == steps) progress(step + 1, steps);
  }
  const double seconds = elapsed();
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const SourceStatus& source : storage.status().sources)
    sources.push_back({{"source", source.name}, {"state", to_string(source.state)}, {"reads", source.reads}, {"in_memory", source.in_memory},
                       {"cached", source.cached}, {"elsewhere", source.elsewhere}, {"given_up", source.given_up}});
  const DataLoader::Counters counters = loader.counters();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const double cpu = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  // Samples read ahead beyond the last step count too: they were decoded in the same time.
  std::cout << nlohmann::ordered_json{{"samples", counters.samples},
                                      {"pictures", counters.pictures},
                                      {"bad_samples", counters.bad_samples},
                                      {"positions", positions},
                                      {"seconds", seconds},
                                      {"cpu_seconds", cpu},
                                      {"threads", loader.options().threads},
                                      {"pictures_per_s", static_cast<double>(counters.pictures) / seconds},
                                      {"samples_per_s", static_cast<double>(counters.samples) / seconds},
                                      {"sources", sources},
                                      {"incidents", incidents}}
                   .dump(2)
            << "\n";
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
    add_data_report(app, chosen);

    sub = app.add_subcommand("ls", "every sample of the index, one JSON object a line");
    sub->footer("\nExample:\n  mso data ls shards | grep unusable\n");
    auto paths = std::make_shared<DataPaths>();
    paths->add_to(*sub);
    sub->callback([=] { *chosen = [=] { return run_ls(*paths); }; });

    auto bench = std::make_shared<BenchArguments>();
    sub = app.add_subcommand("bench", "read, decode and pack as training does, and tell the speed");
    sub->footer("\nExample:\n  mso data bench shards --image-size 336 --patch-size 14\n");
    bench->paths.add_to(*sub);
    sub->add_option("--threads", bench->threads, "decoder threads, 0 for all cores")
        ->check(CLI::Range(0, kMostThreads))
        ->capture_default_str();
    sub->add_option("--batch", bench->batch, "samples a step")
        ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20))
        ->capture_default_str();
    sub->add_option("--epochs", bench->epochs, "passes over the data")
        ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20))
        ->capture_default_str();
    sub->add_option("--seconds", bench->seconds, "stop after so long; 0: after the passes")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    sub->add_option("--image-size", bench->image_size, "side of the model's pictures")
        ->check(CLI::Range(1, 8192))
        ->capture_default_str();
    sub->add_option("--patch-size", bench->patch_size, "side of a patch")
        ->check(CLI::Range(1, 8192))
        ->capture_default_str();
    sub->add_option("--tokenizer", bench->tokenizer, "as model.tokenizer")->capture_default_str();
    sub->add_flag("--exact-jpeg", bench->exact, "as data.exact_jpeg");
    sub->callback([=] { *chosen = [=] { return run_bench(*bench); }; });

    return [chosen] { return *chosen ? (*chosen)() : static_cast<int>(ExitCode::kBadUsage); };
  };
  return command;
}

}  // namespace mso
