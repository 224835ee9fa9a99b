// The configuration of a run: typed values, where each came from, and how two configurations differ. The keys
// with their defaults, ranges and help are one table in config_schema.cc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace mso {

// ero: elastic resource orchestrator.
struct EroConfig {
  std::string gpu_slice_policy;
  std::vector<int64_t> cpu_reserve_cores;  // [image, video]: decoder threads of a node at most
  int64_t nvme_reserve_channels = 0;
  std::string gpu_slices, nvme_lanes;  // for srun --mso: "vision:24G,llm:32G", "image:1x4,video:2x8"; empty: none
  std::string check;                   // prod | staging | off
  std::string needs;                   // least hardware of a node: "pcie-lanes:64,infiniband:off"; empty: the site's
  bool operator==(const EroConfig&) const = default;
};

// mdp: multimodal data pipeline.
struct PrefetchDepth {
  int64_t text = 0, image = 0, video = 0, audio = 0;  // samples decoded ahead
  bool operator==(const PrefetchDepth&) const = default;
};
struct BatchRecipe {
  int64_t text = 0, image = 0, video = 0, audio = 0;  // in what proportion they make up a batch; all 0: as they come
  bool operator==(const BatchRecipe&) const = default;
};
// By what broken samples are replaced (io/healing.h).
struct HealingConfig {
  bool replace = false;
  std::string category;       // auto, or a JSON pointer into the sample's .json
  nlohmann::json thresholds;  // category → least similarity, in place of skip_sample_threshold
  double cap = 0;             // share of a category that may be lost
  int64_t cap_minimum = 0;    // so many lost samples of a category are always allowed
  bool operator==(const HealingConfig&) const = default;
};
struct ShardCacheConfig {
  std::string path;       // empty: no cache
  int64_t max_bytes = 0;  // of all ranks of a node together
  std::string fill;       // always | slow
  bool operator==(const ShardCacheConfig&) const = default;
};
// What samples of a kind may take of a micro-batch and of the batch memory.
struct MicroBatchPart {
  int64_t samples = 0;
  double memory = 0, fragmentation = 0;  // share of mdp.batch_memory; tolerated share of useless free memory
  bool operator==(const MicroBatchPart&) const = default;
};
struct MicroBatchConfig {
  MicroBatchPart text, image, video, audio;
  bool operator==(const MicroBatchConfig&) const = default;
};
struct MdpConfig {
  PrefetchDepth prefetch_depth;
  MicroBatchConfig micro_batch;
  int64_t batch_memory = 0;  // bytes of a rank
  BatchRecipe batch_recipe;
  int64_t defer_after_ms = 0;        // how long a step waits for a late sample; 0: to the end
  double skip_sample_threshold = 0;  // least cosine similarity of a replacement
  HealingConfig healing;
  nlohmann::json nvme, sources;  // name → place; modality → folder or list of folders (objects)
  int64_t latency_limit_ms = 0, read_deadline_ms = 0;
  int64_t read_ahead_bytes = 0;  // of a rank, while a source is slow
  ShardCacheConfig cache;
  bool operator==(const MdpConfig&) const = default;
};

// hpgc: hybrid-precision gradient coordinator.
struct PrecisionRouting {
  std::string vit_encoder, llm_decoder, cross_attention;
  bool operator==(const PrecisionRouting&) const = default;
};
struct HpgcConfig {
  PrecisionRouting precision_routing;
  double grad_clip_ratio = 0;
  bool operator==(const HpgcConfig&) const = default;
};

// ecm: elastic checkpoint manager. An interval of 0 switches the level off.
struct SnapshotLevels {
  int64_t level0_interval_ms = 0, level1_interval_s = 0, level2_interval_m = 0;
  bool operator==(const SnapshotLevels&) const = default;
};
struct EcmConfig {
  SnapshotLevels snapshot_levels;
  std::string level0_path;     // "auto": $MSO_SNAPSHOT_DIR, else /dev/shm (see node/ram_disk.h)
  std::string level0_partner;  // auto | off
  std::string level0_size;     // for srun --mso: of the snapshot directory; "auto", "off" or a size
  bool level1_optimizer = false;
  int64_t keep = 0;                  // generations
  int64_t max_write_bandwidth = 0;   // bytes/s of a rank to the shared file system; 0: no limit
  double min_shared_interval_s = 0;  // levels 1 and 2 are never taken more often
  bool operator==(const EcmConfig&) const = default;
};

// How a model with video takes it; without `frames` it has none, unless its config.json says so.
struct ModelVideoConfig {
  std::optional<int64_t> frames, pool;  // none: as config.json says, else 8 and 2
  bool operator==(const ModelVideoConfig&) const = default;
};
struct ModelConfig {
  std::string family;
  std::string path;                        // Hugging Face folder; empty: from scratch, by `vision` and `text`
  nlohmann::json vision, text, audio;      // Hugging Face names, verbatim (objects); empty with `path`
  std::string projector_hidden_act;        // from scratch only
  bool multimodal_projector_bias = false;  // from scratch only
  ModelVideoConfig video;
  // None: as config.json or the tokenizer says.
  std::optional<int64_t> image_token_index, video_token_index, audio_token_index;
  std::optional<int64_t> vision_feature_layer;
  std::string vision_feature_select_strategy;  // auto | default | full
  std::string tokenizer;                       // "auto": of `path`; "bytes"; a tokenizer.json or its folder
  double init_std = 0;
  bool activation_recomputation = false;
  std::vector<std::string> freeze;  // stage names or glob patterns of parameter names
  bool operator==(const ModelConfig&) const = default;
};

// To what length the frames or features of one sample are brought; length 0: they are left as they are.
struct AlignmentConfig {
  int64_t length = 0;
  std::string rule;  // auto | pad | interpolate | average_pool
  double value = 0;  // of padding
  bool operator==(const AlignmentConfig&) const = default;
};
struct AlignmentsConfig {
  AlignmentConfig video, audio, signal;
  bool operator==(const AlignmentsConfig&) const = default;
};
struct DataConfig {
  std::vector<std::string> path, eval_path;  // folders or tar shards
  std::vector<int64_t> weights;              // of each entry of `path`; empty: all samples equally often
  int64_t eval_shards = 0;                   // the last shards of `path`, held out
  int64_t max_length = 0;                    // positions of a sample at most, image positions included
  std::string over_length;                   // cut | drop: what becomes of longer ones
  std::string prompt_template;               // key data.template
  std::string chat_template;                 // of conversations: auto, a built-in one's name, a file or a folder
  std::string caption;                       // "txt", or a JSON pointer into the sample's .json
  int64_t micro_batch_tokens = 0;            // packed positions of a micro-batch at most
  std::optional<int64_t> decoder_threads;    // none: see decoder_threads()
  bool exact_jpeg = false;
  std::string video_decoder;          // auto | cpu | nvdec
  std::optional<int64_t> image_size;  // none: as the model says
  double max_bad_samples_ratio = 0;
  std::string known_bad;  // list of bad samples (mso data verify --list); empty: none
  AlignmentsConfig alignment;
  bool operator==(const DataConfig&) const = default;
};

struct ParameterGroup {
  std::string match;  // stage name or glob pattern of parameter names
  double learning_rate_scale = 1;
  std::optional<double> weight_decay;  // none: the rule of train.weight_decay
  bool operator==(const ParameterGroup&) const = default;
};
struct TrainConfig {
  std::optional<int64_t> steps;  // none: from `epochs` and the size of the data
  double epochs = 0;
  int64_t global_batch_samples = 0, seed = 0;
  std::string precision;  // fp32 | bf16
  double learning_rate = 0, min_learning_rate = 0;
  int64_t warmup_steps = 0;
  std::string schedule;  // cosine | linear | constant
  double weight_decay = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  double grad_clip_norm = 0;  // 0: off
  std::vector<ParameterGroup> groups;
  int64_t eval_interval = 0,
          eval_samples = 0;  // steps (0: at the end only); samples of an evaluation (0: all)
  double log_interval_s = 0;
  std::string run_dir;
  std::string device;  // auto | cpu | cuda
  bool operator==(const TrainConfig&) const = default;
};

struct ParallelConfig {
  int64_t threads_per_rank = 0;
  double bucket_mb = 0;  // MiB of float32 gradients
  double timeout_s = 0;  // longest wait for another rank
  bool operator==(const ParallelConfig&) const = default;
};

struct Config {
  Config();  // every key has its default

  EroConfig ero;
  MdpConfig mdp;
  HpgcConfig hpgc;
  EcmConfig ecm;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  ParallelConfig parallel;
  bool operator==(const Config&) const = default;
};

// One mistake: where ("FILE:LINE" or "command line"), which dotted key (may be empty), and what is wrong with
// it.
struct ConfigMistake {
  std::string where, key, message;
};

// All mistakes of a configuration at once; what() has one line for each. Exit code kBadUsage.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<ConfigMistake> mistakes);
  const std::vector<ConfigMistake>& mistakes() const { return mistakes_; }

 private:
  std::vector<ConfigMistake> mistakes_;
};

struct LoadedConfig {
  Config config;
  std::string file;                            // empty: none was read
  std::map<std::string, std::string> sources;  // dotted key → "FILE:LINE" or "command line"; absent: default
  std::vector<std::string> notes;              // for the log
};

constexpr const char* kDefaultConfigName = "megascale_config.yaml";

// Reads `file` (empty: megascale_config.yaml in the current directory if it is there), then the overrides
// ("train.steps=300", value parsed as YAML; maps are merged, lists replaced). ConfigError with every mistake;
// Error (kBadUsage) when the file cannot be read.
LoadedConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);
// The same on a text; `name` stands for the file in messages.
LoadedConfig parse_config(std::string_view text, const std::string& name,
                          const std::vector<std::string>& overrides = {});

// The effective configuration, every key; reading it back gives an equal Config.
std::string to_yaml(const Config& config);
nlohmann::json to_json(const Config& config);
Config config_from_json(const nlohmann::json& json, const std::string& name);

// A value that differs; keys inside model.vision, model.text and model.audio are compared one by one.
struct ConfigDifference {
  std::string key, old_value, new_value;  // values as YAML; "(none)" where a free key is absent
  bool safe = false;                      // a run may go on with the new value
};
std::vector<ConfigDifference> diff_config(const Config& old_config, const Config& new_config);

struct EffectiveValue {
  std::string key, value, source;  // source: "default", "FILE:LINE", "command line"
  bool in_force = true;
};
std::vector<EffectiveValue> effective_values(const LoadedConfig& loaded);
std::string format_effective_values(const LoadedConfig& loaded);  // aligned lines
// "key: value" of each key that is accepted at its default but not in force yet.
std::vector<std::string> defaults_not_in_force();

// Decoder threads of one rank: data.decoder_threads, else the share of ero.cpu_reserve_cores that
// `machine_cores` and the ranks on this node leave; never more than ero.cpu_reserve_cores. At least 1.
struct DecoderThreads {
  int64_t image = 1, video = 1;
  std::string note;  // what was scaled down and why; empty: nothing
};
DecoderThreads decoder_threads(const Config& config, int64_t machine_cores, int64_t ranks_on_node);

// Seconds between snapshots of each level, ecm.min_shared_interval_s applied; 0: level off.
struct SnapshotIntervals {
  double level0_s = 0, level1_s = 0, level2_s = 0;
};
SnapshotIntervals snapshot_intervals(const Config& config);

}  // namespace mso
