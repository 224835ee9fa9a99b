// mso data bench: how fast the loader alone is.
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cmd/data_tools.h"
#include "cmd/progress_line.h"
#include "io/data_loader.h"
#include "io/media_decoder.h"
#include "io/picture_decoder.h"
#include "io/storage.h"

namespace mso {
namespace {

struct BenchArguments {
  DataPaths paths;
  int image_size = 224, patch_size = 16, threads = 0;
  uint64_t batch = 32, epochs = 1;
  double seconds = 0;
  int frames = 8, audio_seconds = 30, mel_bins = 80;
  bool exact = false;
  std::string text_template = "<image>{caption}";
  std::string tokenizer = "bytes";
  std::string timeline, video_decoder = "auto";
};

double unix_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Goes through the data as training does, without training: what the loader alone can deliver.
int run(const BenchArguments& arguments) {
  std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(arguments.tokenizer);
  if (arguments.patch_size > arguments.image_size)
    throw Error("a patch is larger than the picture", "--patch-size " + std::to_string(arguments.patch_size),
                "at most --image-size, " + std::to_string(arguments.image_size), ExitCode::kBadUsage);
  const int64_t side = arguments.image_size / arguments.patch_size;
  AssemblerOptions options;
  options.image_token = tokenizer->token_id("<image>").value_or(-1);
  options.text_template = arguments.text_template;
  PerModality<MediaDecoder> media;
  media[Modality::kVideo] = make_video_decoder(clip_image_processor(arguments.image_size), arguments.frames, side * side,
                                               tokenizer->token_id("<video>").value_or(-2), {},
                                               open_video_device(video_backend(arguments.video_decoder)));
  media[Modality::kAudio] = make_audio_decoder(arguments.mel_bins, int64_t{100} * arguments.audio_seconds, int64_t{25} * arguments.audio_seconds,
                                               tokenizer->token_id("<audio>").value_or(-3));
  DataLoaderOptions loading;
  loading.batch_samples = arguments.batch;
  loading.threads = arguments.threads;
  const auto assembler = std::make_shared<const SampleAssembler>(
      arguments.paths.open(), tokenizer,
      make_picture_decoder(clip_image_processor(arguments.image_size), side * side, arguments.exact), options, media);
  DataLoader loader(assembler, loading);
  const auto begin = std::chrono::steady_clock::now();
  loader.start(0);
  uint64_t positions = 0;
  const uint64_t steps = loader.steps_per_epoch() * arguments.epochs;
  const auto progress = progress_line("loading step");
  auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  std::vector<std::string> incidents;
  std::ofstream timeline;
  if (!arguments.timeline.empty()) {
    std::error_code none;
    if (const auto bytes = std::filesystem::file_size(arguments.timeline, none); !none && bytes > 0)
      throw Error("would overwrite a file", arguments.timeline, "give --timeline another name, or remove it", ExitCode::kBadUsage);
    timeline.open(arguments.timeline, std::ios::app);
    if (!timeline) throw system_error("cannot write", arguments.timeline);
  }
  Storage& storage = assembler->dataset().storage();
  for (uint64_t step = 0; step < steps && (arguments.seconds <= 0 || elapsed() < arguments.seconds); ++step) {
    {
      const RankBatch loaded = loader.next();
      for (const MicroBatch& batch : loaded.micro_batches) positions += static_cast<uint64_t>(batch.size());
      if (timeline.is_open())  // at once, for who watches
        timeline << nlohmann::ordered_json{{"type", "step"}, {"time", unix_time()}, {"step", step}, {"samples", loaded.samples}}.dump() << std::endl;
    }
    for (const StorageEvent& event : storage.take_events()) incidents.push_back(event.kind);
    if (step % 16 == 0 || step + 1 == steps) progress(step + 1, steps);
  }
  const double seconds = elapsed();
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const SourceStatus& source : storage.status().sources)
    sources.push_back({{"source", source.name}, {"state", to_string(source.state)}, {"reads", source.reads}, {"in_memory", source.in_memory},
                       {"cached", source.cached}, {"elsewhere", source.elsewhere}, {"given_up", source.given_up}});
  const DataLoader::Counters counters = loader.counters();
  nlohmann::ordered_json by_modality;
  for (Modality m : kAllModalities)
    if (counters.of[m].samples > 0)
      by_modality[name_of(m)] = {{"samples", counters.of[m].samples},
                                 {"samples_per_s", static_cast<double>(counters.of[m].samples) / seconds},
                                 {"decode_s", counters.of[m].decode_s}};
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const double cpu = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  if (timeline.is_open() && !timeline.flush()) throw system_error("cannot write", arguments.timeline);
  // Samples read ahead beyond the last step count too: they were decoded in the same time.
  std::cout << nlohmann::ordered_json{{"samples", counters.samples},
                                      {"pictures", counters.pictures},
                                      {"bad_samples", counters.bad_samples},
                                      {"positions", positions},
                                      {"seconds", seconds},
                                      {"cpu_seconds", cpu},
                                      {"threads", loader.options().threads},
                                      {"peak_bytes", static_cast<uint64_t>(usage.ru_maxrss) * 1024},
                                      {"by_modality", by_modality},
                                      {"pictures_per_s", static_cast<double>(counters.pictures) / seconds},
                                      {"samples_per_s", static_cast<double>(counters.samples) / seconds},
                                      {"sources", sources},
                                      {"incidents", incidents}}
                   .dump(2)
            << "\n";
  return 0;
}

}  // namespace

void add_data_bench(CLI::App& data, const ChosenCommand& chosen) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* sub = data.add_subcommand("bench", "read, decode and pack as training does, and tell the speed");
  sub->footer("\nExample:\n  mso data bench shards --image-size 336 --patch-size 14\n");
  arguments->paths.add_to(*sub);
  sub->add_option("--threads", arguments->threads, "decoder threads, 0 for all cores")
      ->check(CLI::Range(0, kMostThreads))
      ->capture_default_str();
  sub->add_option("--batch", arguments->batch, "samples a step")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20))
      ->capture_default_str();
  sub->add_option("--epochs", arguments->epochs, "passes over the data")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20))
      ->capture_default_str();
  sub->add_option("--seconds", arguments->seconds, "stop after so long; 0: after the passes")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  sub->add_option("--timeline", arguments->timeline, "write time and samples of each step to this file, a JSON object a line");
  sub->add_option("--image-size", arguments->image_size, "side of the model's pictures")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  sub->add_option("--patch-size", arguments->patch_size, "side of a patch")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  sub->add_option("--tokenizer", arguments->tokenizer, "as model.tokenizer")->capture_default_str();
  sub->add_option("--frames", arguments->frames, "frames of a video at most, evenly spaced")->check(CLI::Range(1, 4096))->capture_default_str();
  sub->add_option("--audio-seconds", arguments->audio_seconds, "window of a sound; what is longer is cut, what is shorter padded")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  sub->add_option("--mel-bins", arguments->mel_bins, "rows of a sound's log-mel features")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--template", arguments->text_template, "as data.template; media without a mark are not read")->capture_default_str();
  sub->add_flag("--exact-jpeg", arguments->exact, "as data.exact_jpeg");
  sub->add_option("--video-decoder", arguments->video_decoder, "as data.video_decoder")
      ->check(CLI::IsMember({"auto", "cpu", "nvdec"}))
      ->capture_default_str();
  sub->callback([=] { *chosen = [=] { return run(*arguments); }; });
}

}  // namespace mso
