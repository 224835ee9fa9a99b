#include "exec/training_setup.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/log.h"
#include "ckpt/delta.h"
#include "exec/model_setup.h"
#include "exec/node_preparations.h"
#include "exec/rank_zero.h"
#include "io/known_bad.h"
#include "io/mixture.h"
#include "io/picture_decoder.h"
#include "io/storage_options.h"
#include "node/cpu_list.h"
#include "node/ram_disk.h"
#include "node/thread_place.h"
#include "plan/model_summary.h"
#include "plan/plan.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

// A configuration that differs between ranks would train nonsense for days: compared before anything is opened.
void check_same_configuration(World& world, const Config& config) {
  const std::string mine = hex64(hash64(to_json(config).dump()));
  const std::vector<std::string> all = all_gather_text(world.communicator(), mine, config.parallel.timeout_s);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw Error("ranks were started with different configurations", "rank " + std::to_string(rank) + " differs from rank 0",
                  "give every rank the same file and overrides", ExitCode::kBadUsage);
}

// Depths, recipe, mixture and patience, from the configuration.
void set_data_policy(const Config& config, const Dataset& data, DataLoaderOptions* options) {
  const PrefetchDepth& depth = config.mdp.prefetch_depth;
  const BatchRecipe& recipe = config.mdp.batch_recipe;
  const std::pair<Modality, std::pair<int64_t, int64_t>> values[] = {{Modality::kText, {depth.text, recipe.text}},
                                                                     {Modality::kImage, {depth.image, recipe.image}},
                                                                     {Modality::kVideo, {depth.video, recipe.video}},
                                                                     {Modality::kAudio, {depth.audio, recipe.audio}}};
  const MicroBatchConfig& micro = config.mdp.micro_batch;
  const std::pair<Modality, const MicroBatchPart*> micro_batch_parts[] = {
      {Modality::kText, &micro.text}, {Modality::kImage, &micro.image}, {Modality::kVideo, &micro.video}, {Modality::kAudio, &micro.audio}};
  options->micro_batch.positions = config.data.micro_batch_tokens;
  options->memory_bytes = static_cast<uint64_t>(config.mdp.batch_memory);
  for (const auto& [modality, part] : micro_batch_parts) {
    options->micro_batch.samples[modality] = static_cast<uint64_t>(part->samples);
    MemoryShare& share = options->memory_shares.at(static_cast<size_t>(modality));
    share.share = part->memory;
    share.fragmentation_tolerance = part->fragmentation;
  }
  int64_t parts = 0;
  for (const auto& [modality, pair] : values) {
    options->prefetch_depth[modality] = static_cast<uint64_t>(pair.first);
    parts += pair.second;
  }
  if (parts > 0) {
    if (config.train.global_batch_samples % parts != 0)
      throw Error("the recipe does not divide the global batch",
                  "mdp.batch_recipe has " + std::to_string(parts) + " samples, train.global_batch_samples " +
                      std::to_string(config.train.global_batch_samples),
                  "make the batch a multiple of " + std::to_string(parts), ExitCode::kBadUsage);
    for (const auto& [modality, pair] : values)
      options->recipe[modality] = static_cast<uint64_t>(pair.second * (config.train.global_batch_samples / parts));
  }
  if (!config.data.weights.empty()) options->mixture = mixture_parts(data, config.data.path, config.data.weights);
  if (!config.data.known_bad.empty()) {
    std::vector<Modality> used;
    for (const auto& [modality, mark] : {std::pair(Modality::kImage, "<image>"), {Modality::kVideo, "<video>"}, {Modality::kAudio, "<audio>"}})
      if (data.has_conversations() || config.data.prompt_template.find(mark) != std::string::npos) used.push_back(modality);
    uint64_t unknown = 0;
    for (const auto& [id, bad] : find_known_bad(data, read_known_bad(config.data.known_bad), used, &unknown))
      options->known_bad.emplace(id, bad.reason);
    log_info("{}: {} samples are not read{}", config.data.known_bad, options->known_bad.size(),
             unknown > 0 ? ", " + std::to_string(unknown) + " are of other data" : "");
  }
  options->defer_after_s = config.mdp.defer_after_ms > 0 ? static_cast<double>(config.mdp.defer_after_ms) / 1e3 : -1;
}

}  // namespace

TrainingParts set_up_training(World& world, const LoadedConfig& loaded, bool fresh) {
  TrainingParts parts;
  parts.config = loaded.config;
  const Config& config = parts.config;
  const double timeout_s = config.parallel.timeout_s;
  check_same_configuration(world, config);
  adopt_node_preparations(world, config);
  at::set_num_threads(static_cast<int>(config.parallel.threads_per_rank));

  // What can be refused is refused before the run folder is touched.
  Communicator& ranks = world.communicator();
  const double patience_s = 60 * timeout_s;  // reading weights and indexes takes its time
  ModelInputs inputs;
  together(ranks, patience_s, [&] { inputs = check_model_inputs(config); });
  inputs.options.values = false;  // a snapshot has them, or the trainer asks for them
  const LlavaConfig& model = inputs.model;
  together(ranks, patience_s, [&] { parts.storage = std::make_shared<Storage>(storage_options(config)); });
  // Rank 0 first: it writes the indexes that are missing, the others read them.
  auto open_data = [&](const std::vector<std::string>& paths) {
    std::shared_ptr<const Dataset> data;
    on_rank_zero(ranks, patience_s, [&] { data = Dataset::open(paths, parts.storage); });
    together(ranks, patience_s, [&] {
      if (!data) data = Dataset::open(paths, parts.storage);
    });
    return data;
  };
  std::shared_ptr<const Dataset> data = open_data(config.data.path), held_out;
  if (world.rank() == 0)
    for (const std::string& path : config.data.path)
      if (!is_nvme_url(path)) {
        log_info("{}: plain reads; direct reads and the reservation of lanes are for nvme:// paths", path);
        break;
      }
  if (!config.data.eval_path.empty())
    held_out = open_data(config.data.eval_path);
  else if (config.data.eval_shards > 0)
    together(ranks, timeout_s,
             [&] { std::tie(data, held_out) = Dataset::split(data, static_cast<uint32_t>(config.data.eval_shards)); });

  const PictureDecoder decoder =
      make_picture_decoder(inputs.processor, model.positions_per_image(), config.data.exact_jpeg);
  auto assembler = std::make_shared<SampleAssembler>(data, inputs.tokenizer, decoder, inputs.samples, inputs.media);
  if (held_out) parts.held_out = 
        std::make_shared<SampleAssembler>(held_out, inputs.tokenizer, decoder, inputs.samples, inputs.media);

  const DecoderThreads threads = decoder_threads(config, usable_cores(), world.local_size());
  const bool cpus_given = decoder_cpus_given(ThreadClass::kImage) > 0;
  if (!threads.note.empty() && !cpus_given && world.rank() == 0) log_info("{}", threads.note);
  parts.decoder_threads = static_cast<int>(threads.image);
  // Where the job's CPU sets say what decodes, as many threads as there are CPUs for it.
  if (cpus_given && !config.data.decoder_threads) parts.decoder_threads = decoder_cpus_given(ThreadClass::kImage);
  DataLoaderOptions loader_options;
  loader_options.seed = static_cast<uint64_t>(config.train.seed);
  loader_options.batch_samples = static_cast<uint64_t>(config.train.global_batch_samples);
  loader_options.rank = world.rank();
  loader_options.ranks = world.size();
  loader_options.threads = parts.decoder_threads;
  loader_options.ranks_on_node = world.local_size();
  loader_options.video_threads = static_cast<int>(threads.video);
  loader_options.timeout_s = timeout_s;
  set_data_policy(config, *data, &loader_options);
  together(ranks, patience_s, [&] { parts.healing = open_healing(config, data, world.rank() == 0); });
  if (parts.healing)
    loader_options.find_stand_ins = [healing = parts.healing](uint64_t broken) { return healing->stand_ins(broken); };
  parts.loader = std::make_unique<DataLoader>(assembler, loader_options);
  // The last global batch of the last epoch is completed from the epoch after it, so that no sample is left out.
  parts.total_steps = config.train.steps
                          ? static_cast<uint64_t>(*config.train.steps)
                          : static_cast<uint64_t>(std::ceil(config.train.epochs * static_cast<double>(data->size()) /
                                                            static_cast<double>(config.train.global_batch_samples)));

  together(ranks, patience_s, [&] {
    const auto outline = std::make_shared<const ModelOutline>(outline_model(inputs.options));
    check_weights(inputs.options, *outline);
    parts.graph = build_graph(inputs.options);
    parts.fill_weights = [options = inputs.options, outline, graph = parts.graph.get()](bool trainable) {
      if (!trainable && graph->frozen_layout().size == 0) return;  // all comes from the snapshot
      fill_parameters(options, *outline, trainable ? graph->weights() : nullptr, graph->frozen_weights());
      graph->frozen_weights_changed();
    };
    parts.plan = make_data_parallel_plan(
        summarise_llava(nlohmann::json::parse(inputs.options.config_json), config.model.freeze), config, world.size());
    // While the gradients of one step are written to L0, those of the next are summed.
    if (snapshot_intervals(config).level0_s > 0) parts.gradient_buffers = kMaxDeltas + 1;
    const FlatLayout& layout = parts.graph->layout();
    parts.optimizer_memory = SliceReservation(
        "the optimizer's state and the gradients it keeps",
        optimizer_bytes(layout, plan_buckets(layout, parts.plan.bucket_elements, world.size()), world.rank(), parts.gradient_buffers));
  });

  parts.directory = open_run_directory(world, config.train.run_dir, fresh, timeout_s);
  parts.attempt = std::make_unique<RunAttempt>(RunAttempt::begin(parts.directory.path, world.communicator(), timeout_s));
  if (world.rank() == 0) add_log_file((parts.directory.path / "log.txt").string());

  CheckpointSettings& settings = parts.checkpoint_settings;
  const SnapshotIntervals intervals = snapshot_intervals(config);
  settings.run_dir = parts.directory.path;
  settings.level0_path = level0_folder(config.ecm.level0_path);
  settings.run_id = parts.attempt->run_id();
  settings.earlier_run_ids = parts.attempt->earlier_run_ids();
  settings.attempt = parts.attempt->number();
  settings.node = world.node();
  // The configuration says "0: off", the manager "negative: off".
  settings.level0_interval_s = intervals.level0_s > 0 ? intervals.level0_s : -1;
  settings.level1_interval_s = intervals.level1_s > 0 ? intervals.level1_s : -1;
  settings.level2_interval_s = intervals.level2_s > 0 ? intervals.level2_s : -1;
  settings.level0_partner = config.ecm.level0_partner == "auto";
  settings.level1_optimizer = config.ecm.level1_optimizer;
  settings.keep = static_cast<int>(config.ecm.keep);
  settings.max_write_bandwidth = static_cast<double>(config.ecm.max_write_bandwidth) * world.size();
  settings.timeout_s = timeout_s;

  parts.records["config"] = to_json(config).dump();
  parts.records["plan"] = plan_to_json(parts.plan).dump();
  parts.records["tokenizer"] = inputs.tokenizer->source_text();
  parts.records["tokenizer_config"] = inputs.tokenizer->config_text();
  parts.records["model_files"] = model_files(config, *inputs.tokenizer, inputs.samples.conversations.get());
  parts.records["model_config"] = inputs.options.config_json;
  return parts;
}

}  // namespace mso
