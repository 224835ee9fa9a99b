// mso data bench: how fast the loader alone is.
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/safetensors.h"
#include "cmd/data_tools.h"
#include "cmd/progress_line.h"
#include "io/data_loader.h"
#include "io/media_decoder.h"
#include "io/built_in_chat.h"
#include "io/caption_template.h"
#include "io/picture_decoder.h"
#include "io/processor_decoder.h"
#include "io/storage.h"

namespace mso {
namespace {

struct BenchArguments {
  DataPaths paths;
  int image_size = 224, patch_size = 16, threads = 0;
  uint64_t batch = 32, epochs = 1;
  double seconds = 0;
  int frames = 0, audio_seconds = 30, mel_bins = 80;
  bool exact = false;
  std::string text_template, tokenizer;  // empty: what fits
  std::string processor, image_backend = "pil", chat_template, dump, timeline, video_decoder = "auto";
};

double unix_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// What samples are made into: LLaVA's fixed-size pictures by the options, or what a model folder's processor says.
struct Family {
  std::shared_ptr<const Tokenizer> tokenizer;
  PerModality<MediaDecoder> decoders;
  AssemblerOptions options;
  MediaPlaceholders placeholders = {"<image>", "<video>", "<audio>"};
  std::string chat_template = "llava_v1";  // where --chat-template says nothing
};

Family llava_family(const BenchArguments& arguments) {
  Family family;
  family.tokenizer = load_tokenizer(arguments.tokenizer.empty() ? "bytes" : arguments.tokenizer);
  if (arguments.patch_size > arguments.image_size)
    throw Error("a patch is larger than the picture", "--patch-size " + std::to_string(arguments.patch_size),
                "at most --image-size, " + std::to_string(arguments.image_size), ExitCode::kBadUsage);
  const int64_t side = arguments.image_size / arguments.patch_size;
  auto token = [&](const char* mark, int64_t otherwise) { return family.tokenizer->token_id(mark).value_or(otherwise); };
  const ImageProcessorConfig pictures = clip_image_processor(arguments.image_size);
  family.options.image_token = token("<image>", -2);
  family.decoders[Modality::kImage] = media_decoder_of(make_picture_decoder(pictures, side * side, arguments.exact), family.options.image_token);
  family.decoders[Modality::kVideo] = make_video_decoder(pictures, arguments.frames > 0 ? arguments.frames : 8, side * side, token("<video>", -3), {},
                                                         open_video_device(video_backend(arguments.video_decoder)));
  family.decoders[Modality::kAudio] = make_audio_decoder(arguments.mel_bins, int64_t{100} * arguments.audio_seconds,
                                                         int64_t{25} * arguments.audio_seconds, token("<audio>", -4));
  family.options.text_template = "<image>{caption}";
  return family;
}

Family processor_family(const BenchArguments& arguments) {
  Family family;
  ProcessorOptions backend;
  backend.image_backend = arguments.image_backend == "pil" ? ImageBackend::kPil : ImageBackend::kTorchvision;
  const std::shared_ptr<const MediaProcessor> processor = load_processor(arguments.processor, backend);
  family.tokenizer = load_tokenizer(arguments.tokenizer.empty() ? arguments.processor : arguments.tokenizer);
  family.decoders = processor_decoders(processor, *family.tokenizer, {arguments.exact, arguments.frames, open_video_device(video_backend(arguments.video_decoder))});
  family.placeholders = processor->placeholders();
  family.chat_template = arguments.processor;
  std::string& marks = family.options.text_template;
  marks.clear();
  for (Modality m : {Modality::kVideo, Modality::kImage, Modality::kAudio})
    if (family.decoders[m].decode) marks += mark_of(m);
  marks += "{caption}";
  return family;
}

// The chat template for data with conversations.
void add_chat(const std::string& where, Family* family) {
  ConversationOptions chat;
  chat.placeholders = family->placeholders;
  chat.add_bos = true;
  std::error_code ignored;
  auto load = [&] {
    if (std::filesystem::is_directory(where, ignored)) return ChatTemplate::load(where);
    if (const auto built_in = built_in_chat_template(where, family->placeholders))
      return ChatTemplate(*built_in, where, family->tokenizer->config_text());
    if (!std::filesystem::is_regular_file(where, ignored))
      throw Error("no such chat template", "--chat-template " + where, "llava_v1, chatml, plain, a Jinja file, or a folder with one",
                  ExitCode::kBadUsage);
    return ChatTemplate(read_file(where, 1 << 20), where, family->tokenizer->config_text());
  };
  ChatTemplate made = load();
  for (const auto& [variable, id] : {std::pair("bos_token", family->tokenizer->bos_id()), {"eos_token", family->tokenizer->eos_id()}})
    if (const auto token = id ? family->tokenizer->token(*id) : std::nullopt) made.set_variable(variable, *token);
  family->options.conversations = std::make_shared<const ConversationEncoder>(family->tokenizer, std::move(made), chat);
}

// The first micro-batch, for comparison with other programs.
void dump(const MicroBatch& batch, const std::string& path) {
  std::vector<SafetensorsItem> items;
  auto add = [&](const std::string& name, const std::vector<int64_t>& values) {
    items.push_back({name, DType::kI64, {static_cast<int64_t>(values.size())}, values.data()});
  };
  add("tokens", batch.tokens);
  add("labels", batch.labels);
  add("positions", batch.positions);
  add("sample_starts", batch.sample_starts);
  const std::vector<int64_t> ids(batch.sample_ids.begin(), batch.sample_ids.end());
  add("sample_ids", ids);
  for (const auto& [modality, positions] : batch.media_positions) add("media_positions." + modality, positions);
  for (const auto& [name, tensor] : batch.media) items.push_back({"media." + name, tensor.dtype, tensor.shape, tensor.bytes.data()});
  write_safetensors(path, items);
}

// Goes through the data as training does, without training: what the loader alone can deliver.
int run(const BenchArguments& arguments) {
  Family family = arguments.processor.empty() ? llava_family(arguments) : processor_family(arguments);
  if (!arguments.text_template.empty()) family.options.text_template = arguments.text_template;
  const std::shared_ptr<const Dataset> data = arguments.paths.open();
  if (data->has_conversations()) add_chat(arguments.chat_template.empty() ? family.chat_template : arguments.chat_template, &family);
  DataLoaderOptions loading;
  loading.batch_samples = arguments.batch;
  loading.threads = arguments.threads;
  if (!arguments.dump.empty()) loading.micro_batch.positions = std::numeric_limits<int32_t>::max();  // all in one
  const auto assembler = std::make_shared<const SampleAssembler>(data, family.tokenizer, family.decoders, family.options);
  DataLoader loader(assembler, loading);
  const auto begin = std::chrono::steady_clock::now();
  loader.start(0);
  uint64_t positions = 0, packed = 0, pictures = 0;
  std::map<std::string, uint64_t> media_positions, bad_reasons;
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
    const RankBatch taken = loader.next();
    pictures += taken.media[Modality::kImage];
    for (const MicroBatch& batch : taken.micro_batches) {
      positions += static_cast<uint64_t>(batch.size());
      packed += static_cast<uint64_t>(batch.samples());
      for (const auto& [modality, at] : batch.media_positions) media_positions[modality] += at.size();
    }
    for (const BadSample& bad : taken.bad_samples) bad_reasons[bad.reason] += 1;
    if (step == 0 && !arguments.dump.empty()) {
      if (taken.micro_batches.empty())
        throw Error("no sample of the first step can be used", bad_reasons.empty() ? "" : bad_reasons.begin()->first + ": " + taken.bad_samples[0].detail,
                    "`mso data verify` names what is wrong with each", ExitCode::kBadData);
      dump(taken.micro_batches[0], arguments.dump);
    }
    if (timeline.is_open())  // at once, for who watches
      timeline << nlohmann::ordered_json{{"type", "step"}, {"time", unix_time()}, {"step", step}, {"samples", taken.samples}}.dump() << std::endl;
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
                                      {"bad_reasons", bad_reasons},
                                      {"positions", positions},
                                      {"positions_per_sample", packed > 0 ? static_cast<double>(positions) / static_cast<double>(packed) : 0},
                                      {"feature_positions", media_positions},
                                      {"tokens_per_picture", pictures > 0 ? static_cast<double>(media_positions["image"]) / static_cast<double>(pictures) : 0},
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
  sub->add_option("--tokenizer", arguments->tokenizer, "as model.tokenizer; without it that of --processor, else bytes");
  sub->add_option("--processor", arguments->processor,
                  "Hugging Face model folder whose processor, tokenizer and chat template are used (LLaVA-NeXT, Qwen2-VL, InternVL, Fuyu, CLIP, Whisper …)")
      ->check(CLI::ExistingDirectory);
  sub->add_option("--image-backend", arguments->image_backend, "whose pixels pictures get with --processor")
      ->check(CLI::IsMember({"pil", "torchvision"}))
      ->capture_default_str();
  sub->add_option("--chat-template", arguments->chat_template, "as data.chat_template, for conversations; without it that of --processor, else llava_v1");
  sub->add_option("--dump", arguments->dump, "writes the first batch to a .safetensors file: tokens, labels, positions, tensors");
  sub->add_option("--frames", arguments->frames, "frames of a video at most, evenly spaced; 0: 8, or as --processor's family samples")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  sub->add_option("--audio-seconds", arguments->audio_seconds, "window of a sound; what is longer is cut, what is shorter padded")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  sub->add_option("--mel-bins", arguments->mel_bins, "rows of a sound's log-mel features")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--template", arguments->text_template, "as data.template; media without a mark are not read; without it <image>{caption}, or a mark for all that --processor takes");
  sub->add_flag("--exact-jpeg", arguments->exact, "as data.exact_jpeg");
  sub->add_option("--video-decoder", arguments->video_decoder, "as data.video_decoder")
      ->check(CLI::IsMember({"auto", "cpu", "nvdec"}))
      ->capture_default_str();
  sub->callback([=] { *chosen = [=] { return run(*arguments); }; });
}

}  // namespace mso
