// mso data index: the index beside each shard, and with --embed embeddings and neighbours for healing.
#include <config.h>

#include <fstream>
#include <iostream>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cmd/data_tools.h"
#include "cmd/progress_line.h"
#include "io/descriptor.h"
#include "io/index_file.h"
#include "io/neighbour_builder.h"
#include "io/neighbours.h"
#ifdef MSO_HAVE_TRAIN
#include "cmd/clip_adapter.h"
#endif

namespace mso {
namespace {

struct IndexArguments {
  std::vector<std::string> paths;
  std::string embed;  // empty: no; "builtin", or the folder of a CLIP model
  bool float32 = false, count_frames = false;
  NeighbourOptions options;
};

std::unique_ptr<Embedder> make_embedder(const std::string& what) {
  if (what == "builtin") return std::make_unique<BuiltinEmbedder>();
#ifdef MSO_HAVE_TRAIN
  return make_clip_adapter(what);
#else
  throw Error("CLIP embeddings are not available", "this build has no training (--with-torch)",
              "--embed=builtin works without", ExitCode::kBadUsage);
#endif
}

// One file for the shards of each folder.
void embed(const Dataset& dataset, const IndexArguments& arguments) {
  const std::unique_ptr<Embedder> embedder = make_embedder(arguments.embed);
  std::map<std::filesystem::path, std::vector<std::string>> folders;
  for (uint32_t k = 0; k < dataset.shard_count(); ++k)
    folders[dataset.shard_path(k).parent_path()].push_back(dataset.shard_path(k).string());
  for (const auto& [folder, shards] : folders) {
    const auto part = Dataset::open(shards);
    NeighbourOptions options = arguments.options;
    options.half = !arguments.float32;
    const std::filesystem::path path = folder / kNeighbourFile;
    const NeighbourSummary summary = build_neighbours(*part, *embedder, options, path, staged_progress_line());
    std::cout << path.string() << ": " << summary.samples << " samples in " << summary.categories
              << (summary.categories == 1 ? " category, " : " categories, ") << summary.healthy << " of them healthy, by "
              << embedder->name() << " (" << format_bytes(static_cast<double>(summary.bytes)) << ")\n";
    for (const auto& [reason, count] : summary.broken) std::cout << "  broken: " << count << " " << reason << "\n";
  }
}

int run(const IndexArguments& arguments) {
  auto dataset = Dataset::open(arguments.paths);
  if (arguments.count_frames) {
    for (uint32_t k = 0; k < dataset->shard_count(); ++k) count_media_in_index(dataset->shard_path(k));
    dataset = Dataset::open(arguments.paths);
  }
  for (uint32_t k = 0; k < dataset->shard_count(); ++k) {
    const bool stored = std::ifstream(index_path(dataset->shard_path(k))).good();
    std::cout << dataset->shard_path(k).string() << ": " << dataset->shard_index(k).size() << " samples"
              << (dataset->shard_index(k).end_mark() ? "" : ", truncated") << (stored ? "" : ", index not stored") << "\n";
  }
  if (!arguments.embed.empty()) embed(*dataset, arguments);
  return 0;
}

}  // namespace

void add_data_index(CLI::App& data, const ChosenCommand& chosen) {
  auto arguments = std::make_shared<IndexArguments>();
  CLI::App* sub = data.add_subcommand(
      "index", "make the index beside each shard where it is missing or stale; with --embed, find neighbours for healing");
  sub->footer(
      "\nWith --embed every sample is read once, and neighbours.mso is written beside the shards of each folder: what a\n"
      "broken sample may be replaced by in training (mdp.healing).\n"
      "\nExamples:\n"
      "  mso data index shards\n"
      "  mso data index --embed shards\n"
      "  mso data index --embed=clip-vit-base-patch32 --category /category shards\n");
  sub->add_option("PATH", arguments->paths, "folders of shards, or .tar files")->required();
  // An option with an optional value takes it behind "=" alone, so that `--embed shards` means what it seems to mean.
  sub->add_flag("--embed{builtin}", arguments->embed,
                "embed and find neighbours: by the built-in descriptor, or =DIR, a Hugging Face folder of a CLIP model")
      ->type_name("[=builtin|DIR]");
  sub->add_flag("--count-frames", arguments->count_frames,
                "read videos and sounds of more than 8 MiB whole, too, where their header does not tell frames and length");
  sub->add_option("--category", arguments->options.category, "where categories are, as mdp.healing.category")
      ->capture_default_str();
  sub->add_option("--caption", arguments->options.caption, "where captions are, as data.caption")->capture_default_str();
  sub->add_option("--threads", arguments->options.threads, "threads, 0 for all cores")
      ->check(CLI::Range(0, kMostThreads))
      ->capture_default_str();
  sub->add_option("--kept", arguments->options.kept, "neighbours kept of each sample; three are used, the rest is spare")
      ->check(CLI::Range(3u, 256u))
      ->capture_default_str();
  sub->add_flag("--float32", arguments->float32, "keep embeddings in float32 instead of float16");
  sub->add_flag("--hide-category", arguments->options.hide_category,
                "search all categories, to measure how often the nearest is of the right one; training takes no such file");
  sub->callback([=] { *chosen = [=] { return run(*arguments); }; });
}

}  // namespace mso
