// Configuration: the mission's defaults, every kind of mistake with its place, overrides, round trips,
// differences.
#include "base/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/config_schema.h"
#include "base/file.h"

namespace mso {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

// "WHERE: KEY: MESSAGE" of each mistake; empty: accepted.
Strings mistakes(const std::string& text, const Strings& overrides = {}) {
  Strings out;
  try {
    parse_config(text, "a.yaml", overrides);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage);
    for (const ConfigMistake& mistake : error.mistakes())
      out.push_back(mistake.where + ": " + (mistake.key.empty() ? "" : mistake.key + ": ") + mistake.message);
  }
  return out;
}
std::string mistake(const std::string& text, const Strings& overrides = {}) {
  const Strings all = mistakes(text, overrides);
  EXPECT_LE(all.size(), 1u) << (all.size() > 1 ? all[1] : "");
  return all.empty() ? "" : all[0];
}
Config parse(const std::string& text, const Strings& overrides = {}) {
  return parse_config(text, "a.yaml", overrides).config;
}

TEST(ConfigMistakes, KeysThatAreNotUtf8) {
  // A key of a free map is kept as it is, so it must be text.
  EXPECT_NE(mistake("", {"model.text.\xc0\x8b=1"}).find("not UTF-8"), std::string::npos);
  EXPECT_NE(mistake("", {"\xff=1"}).find("not UTF-8"), std::string::npos);
  EXPECT_NE(mistake("model: {text: {\"\xff\": 1}}"), "");
}

TEST(ConfigDefaults, AreTheMissions) {
  const json config = to_json(Config());
  EXPECT_EQ(
      config["ero"],
      json::parse(
          R"({"gpu_slice_policy": "dynamic", "cpu_reserve_cores": [4, 8], "nvme_reserve_channels": 2,
              "gpu_slices": "", "nvme_lanes": "", "check": "staging", "needs": ""})"));
  EXPECT_EQ(
      config["mdp"],
      json::parse(
          R"({"prefetch_depth": {"text": 16, "image": 8, "video": 4, "audio": 8},
              "batch_recipe": {"text": 0, "image": 0, "video": 0, "audio": 0}, "defer_after_ms": 2000,
              "skip_sample_threshold": 0.92,
              "healing": {"replace": true, "category": "auto", "thresholds": {}, "cap": 0.01, "cap_minimum": 3}, "nvme": {}, "sources": {}, "latency_limit_ms": 100,
              "read_deadline_ms": 10000, "read_ahead_bytes": 268435456,
              "cache": {"path": "", "max_bytes": 68719476736, "fill": "always"}, "batch_memory": 1073741824,
              "micro_batch": {"image": {"samples": 8, "memory": 0.45, "fragmentation": 0.12}, "text": {"samples": 512, "memory": 0.30, "fragmentation": 0.08},
                              "audio": {"samples": 32, "memory": 0.25, "fragmentation": 0.15}, "video": {"samples": 4, "memory": 0.0, "fragmentation": 0.15}}})"));
  EXPECT_EQ(
      config["hpgc"],
      json::parse(
          R"({"precision_routing": {"vit_encoder": "fp16", "llm_decoder": "bf16", "cross_attention": "fp32"}, "grad_clip_ratio": 0.01})"));
  EXPECT_EQ(config["ecm"]["snapshot_levels"],
            json::parse(R"({"level0_interval_ms": 500, "level1_interval_s": 30, "level2_interval_m": 5})"));
  EXPECT_EQ(config["train"]["precision"], "fp32");
}

TEST(ConfigSchema, NamesAreUniqueDefaultsAreLegalHelpIsThere) {
  std::set<std::string> names;
  for (const ConfigKey& key : config_schema()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_EQ(key.get(Config()), key.default_value) << key.name;
    EXPECT_FALSE(section_help(key.name.substr(0, key.name.find('.'))).empty()) << key.name;
    EXPECT_EQ(find_config_key(key.name), &key);
    // The same default, written by the user.
    const std::string value = key.default_value.is_null() ? "auto" : value_text(key.default_value);
    EXPECT_EQ(mistake("", {key.name + "=" + value}), "") << key.name;
  }
  // No key is a section of another.
  for (const std::string& name : names)
    for (const std::string& other : names)
      EXPECT_FALSE(other.starts_with(name + ".")) << name << " " << other;
}

TEST(ConfigFile, ReadsEveryKindOfValue) {
  const Config c = parse(R"(
ero: {cpu_reserve_cores: [2, 3]}
ecm:
  max_write_bandwidth: 1.5G
  level1_optimizer: no
model:
  text: {hidden_size: 64, rope_parameters: {rope_theta: 1e4, rope_type: default}, tie: true, x: null, name: "12", list: [1, b]}
  freeze: vision_encoder
  vision_feature_layer: -1
data:
  path: [a, "b c", 17]
  decoder_threads: 3
  template: "<image>\n{caption}"
train:
  steps: 1e3
  learning_rate: 2e-5
  groups:
    - {match: projector, learning_rate_scale: 2}
    - {match: "*.bias", weight_decay: 0}
)");
  EXPECT_EQ(c.ero.cpu_reserve_cores, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(c.ecm.max_write_bandwidth, int64_t{3} << 29);
  EXPECT_FALSE(c.ecm.level1_optimizer);
  EXPECT_EQ(c.model.text,
            json::parse(R"({"hidden_size": 64, "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"},
      "tie": true, "x": null, "name": "12", "list": [1, "b"]})"));
  EXPECT_TRUE(c.model.text["hidden_size"].is_number_integer());
  EXPECT_EQ(c.model.freeze, Strings{"vision_encoder"});
  EXPECT_EQ(c.model.vision_feature_layer, -1);
  EXPECT_EQ(c.data.path, (Strings{"a", "b c", "17"}));
  EXPECT_EQ(c.data.decoder_threads, 3);
  EXPECT_EQ(c.data.prompt_template, "<image>\n{caption}");
  EXPECT_EQ(c.train.steps, 1000);
  EXPECT_EQ(c.train.learning_rate, 2e-5);
  ASSERT_EQ(c.train.groups.size(), 2u);
  EXPECT_EQ(c.train.groups[0].learning_rate_scale, 2);
  EXPECT_FALSE(c.train.groups[0].weight_decay.has_value());
  EXPECT_EQ(c.train.groups[1].match, "*.bias");
  EXPECT_EQ(c.train.groups[1].weight_decay, 0.0);
}

TEST(ConfigFile, EmptyTextAndEmptySectionsAreTheDefaults) {
  for (const char* text :
       {"", "\n", "# nothing\n", "---\n", "~", "train:\n", "train: {}\nmdp:\n  prefetch_depth:\n",
        "\xef\xbb\xbftrain:\n  seed: 42\n", "train:\r\n  seed: 42\r\n"})
    EXPECT_EQ(parse(text), Config()) << text;
}

TEST(ConfigFile, AliasesAndDottedKeysWork) {
  EXPECT_EQ(parse("train: {seed: &x 7, warmup_steps: *x}").train.warmup_steps, 7);
  EXPECT_EQ(parse("train.seed: 7").train.seed, 7);
}

TEST(ConfigMistakes, AllAreReportedAtOnceWithLineAndNearestKey) {
  EXPECT_EQ(mistakes("train:\n  stesp: 3\n  seed: abc\nmodle:\n  family: llava\necm:\n  keep: 0\ndata:\n  "
                     "learning_rate: 3\n",
                     {"train.learning_rat=3", "parallel.timeout_s=30s", "bogus"}),
            (Strings{"a.yaml:2: train.stesp: unknown key, did you mean train.steps?",
                     "a.yaml:3: train.seed: \"abc\" where an integer, 0 or more is wanted",
                     "a.yaml:4: modle: unknown key, did you mean model?",
                     "a.yaml:7: ecm.keep: 0 is out of range: an integer from 1 to 1000 is wanted",
                     "a.yaml:9: data.learning_rate: unknown key, did you mean train.learning_rate?",
                     "command line: train.learning_rat: unknown key, did you mean train.learning_rate?",
                     "command line: parallel.timeout_s: \"30s\" where a number above 0 is wanted (the unit "
                     "is in the key's name)",
                     "command line: \"bogus\" is not KEY=VALUE"}));
}

TEST(ConfigMistakes, UnknownKeysFarFromAnythingHaveNoSuggestion) {
  EXPECT_EQ(mistake("zzzzzzzzzzzz: 1"), "a.yaml:1: zzzzzzzzzzzz: unknown key");
  EXPECT_EQ(mistake("train: {qqqqqqqqq: 1}"), "a.yaml:1: train.qqqqqqqqq: unknown key");
  EXPECT_EQ(mistake("", {std::string(5000, 'k') + "=1"}),
            "command line: " + std::string(5000, 'k') + ": unknown key");
}

TEST(ConfigMistakes, DuplicatesNameBothLines) {
  EXPECT_EQ(mistake("train:\n  seed: 1\n  seed: 2\n"), "a.yaml:3: train.seed: given twice, first on line 2");
  EXPECT_EQ(mistake("train:\n  seed: 1\ndata:\ntrain:\n  steps: 2\n"),
            "a.yaml:4: train: given twice, first on line 1");
  EXPECT_EQ(mistake("train:\n  seed: 1\ntrain.seed: 2\n"),
            "a.yaml:3: train.seed: given twice, first at a.yaml:2");
  EXPECT_EQ(mistake("model:\n  text:\n    a: 1\n    a: 2\n"),
            "a.yaml:4: model.text.a: given twice, first on line 3");
  EXPECT_EQ(mistake("train:\n  groups:\n  - match: a\n    match: b\n"),
            "a.yaml:4: train.groups[0].match: given twice");
}

TEST(ConfigMistakes, WrongTypes) {
  for (const char* value :
       {"[1]", "{a: 1}", "1.5", "true", "\"3\"", "", "0x", "1_000", "nan", ".inf", "99999999999999999999"})
    EXPECT_NE(mistake(std::string("train: {seed: ") + value + "}"), "") << value;
  for (const char* value :
       {"[1]", "{a: 1}", "abc", "\"0.5\"", ".nan", ".inf", "-.inf", "1e999", "1e-3s", "-"})
    EXPECT_NE(mistake(std::string("train: {learning_rate: ") + value + "}"), "") << value;
  for (const char* value : {"1", "\"true\"", "maybe", "[]", "~"})
    EXPECT_NE(mistake(std::string("data: {exact_jpeg: ") + value + "}"), "") << value;
  for (const char* value : {"4", "[4]", "[4, 8, 9]", "[4, x]", "[0, 8]", "{a: 1}", "[[4], 8]"})
    EXPECT_NE(mistake(std::string("ero: {cpu_reserve_cores: ") + value + "}"), "") << value;
  for (const char* value : {"12 parsecs", "-1", "1e30", "[1]", "16GG", "G", "0x10"})
    EXPECT_NE(mistake(std::string("ecm: {max_write_bandwidth: ") + value + "}"), "") << value;
  for (const char* value : {"{caption}", "[a]"})
    EXPECT_NE(mistake(std::string("data: {template: ") + value + "}"), "") << value;
  for (const char* value :
       {"3", "[a]", "projector", "[{learning_rate_scale: 1}]", "[{match: a, learning_rate_scale: -1}]",
        "[{match: a, weight_decay: x}]", "[{match: [a]}]", "[{mathc: a, match: b}]", "{match: a}"})
    EXPECT_NE(mistakes(std::string("train: {groups: ") + value + "}").size(), 0u) << value;
  for (const char* value : {"3", "[a]", "abc"})
    EXPECT_NE(mistake(std::string("model: {text: ") + value + "}"), "") << value;
  for (const char* text : {"train: 3", "train: [seed]", "[train]", "abc", "mdp: {prefetch_depth: 4}"})
    EXPECT_NE(mistake(text), "") << text;
}

TEST(ConfigMistakes, ChoicesSuggestTheNearest) {
  EXPECT_EQ(
      mistake("train: {schedule: cosin}"),
      "a.yaml:1: train.schedule: \"cosin\" where cosine | linear | constant is wanted, did you mean cosine?");
  EXPECT_NE(mistake("train: {schedule: }"), "");
  EXPECT_NE(mistake("", {"train.schedule="}), "");
}

TEST(ConfigMistakes, WhatIsNotInForceIsRefusedByNameUnlessItIsTheDefault) {
  EXPECT_EQ(mistake("train: {precision: routed}"), "a.yaml:1: train.precision: routed is not available yet");
  EXPECT_EQ(mistake("ero: {nvme_reserve_channels: 4}"),
            "a.yaml:1: ero.nvme_reserve_channels: 4 is not available yet; only the default 2 is accepted");
  EXPECT_NE(mistake("hpgc: {grad_clip_ratio: 0.02}"), "");
  EXPECT_NE(mistake("hpgc: {precision_routing: {vit_encoder: bf16}}"), "");
  EXPECT_NE(mistake("ero: {gpu_slice_policy: static}"), "");
  EXPECT_EQ(mistake("hpgc: {grad_clip_ratio: 1e-2, precision_routing: {vit_encoder: fp16}}\nero: "
                    "{nvme_reserve_channels: 2}"),
            "");
  std::set<std::string> listed;
  for (const std::string& line : defaults_not_in_force()) listed.insert(line.substr(0, line.find(':')));
  for (const char* key : {"ero.gpu_slice_policy", "ero.nvme_reserve_channels",
                          "hpgc.precision_routing.vit_encoder", "hpgc.grad_clip_ratio"})
    EXPECT_TRUE(listed.count(key)) << key;
}

TEST(ConfigMistakes, ValuesThatContradictEachOther) {
  EXPECT_EQ(mistake("train:\n  min_learning_rate: 1\n"),
            "a.yaml:2: train.min_learning_rate: is greater than train.learning_rate");
  EXPECT_NE(mistake("data: {micro_batch_tokens: 100}"), "");
  EXPECT_NE(mistake("model: {path: x, text: {a: 1}}"), "");
}

TEST(ConfigMistakes, BadYaml) {
  EXPECT_TRUE(mistake("train: [1\n").starts_with("a.yaml:"));
  EXPECT_TRUE(mistake("a: b: c").starts_with("a.yaml:1: not valid YAML"));
  EXPECT_NE(mistake("train: *nowhere"), "");
  EXPECT_NE(mistake("train: {}\n---\ndata: {}\n"), "");
  EXPECT_NE(mistake("[a, b]: c"), "");
  // yaml-cpp reads each of these as empty documents without end.
  for (const char* text : {"}", "]", "~}", "train: {}\n}\n", "~}]}}}\n", "- a\n]"}) EXPECT_NE(mistake(text), "") << text;
  EXPECT_NE(mistake("train:\n\tseed: 1"), "");
  EXPECT_NE(mistake("&a {train: *a}"), "");  // endless
  EXPECT_NE(mistake("model: {text: &a {x: *a}}"), "");
  EXPECT_NE(mistake(std::string(2000, '[')), "");
  std::string bomb = "model:\n  text:\n    a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "    a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last;
    for (int j = 0; j < 9; ++j) bomb += ", " + last;
    bomb += "]\n";
  }
  EXPECT_NE(mistake(bomb), "");
}

TEST(ConfigMistakes, TextThatIsNotUtf8OrHoldsNul) {
  EXPECT_NE(mistake("", {"data.path=/data/caf\xe9"}), "");
  EXPECT_NE(mistake("train: {run_dir: \"a\\0b\"}"), "");
  EXPECT_EQ(mistake("train: {run_dir: \"caf\xc3\xa9 \xf0\x9f\x90\xa7\"}"), "");
}

TEST(ConfigOverrides, WinOverTheFileAndSayWhereFrom) {
  const LoadedConfig loaded = parse_config(
      "train:\n  seed: 1\n  steps: 5\nmodel:\n  text:\n    a: 1\n    b: 2\n", "a.yaml",
      {"train.steps=300", "model.text.b=3", "model.text.c.d=4", "mdp={prefetch_depth: {text: 2}}"});
  EXPECT_EQ(loaded.config.train.steps, 300);
  EXPECT_EQ(loaded.config.train.seed, 1);
  EXPECT_EQ(loaded.config.model.text, json::parse(R"({"a": 1, "b": 3, "c": {"d": 4}})"));
  EXPECT_EQ(loaded.config.mdp.prefetch_depth.text, 2);
  EXPECT_EQ(loaded.config.mdp.prefetch_depth.image, 8);
  EXPECT_EQ(loaded.sources.at("train.seed"), "a.yaml:2");
  EXPECT_EQ(loaded.sources.at("train.steps"), "command line");
  EXPECT_EQ(loaded.sources.at("model.text.a"), "a.yaml:6");
  EXPECT_EQ(loaded.sources.at("model.text.c.d"), "command line");
  EXPECT_FALSE(loaded.sources.count("train.epochs"));
}

TEST(ConfigOverrides, TextIsTakenAsItStands) {
  const Config c = parse(
      "", {"data.template={caption}: <image>", "train.run_dir=#1 [x", "data.path=a: [b", "model.path="});
  EXPECT_EQ(c.data.prompt_template, "{caption}: <image>");
  EXPECT_EQ(c.train.run_dir, "#1 [x");
  EXPECT_EQ(c.data.path, Strings{"a: [b"});
  EXPECT_EQ(c.model.path, "");
  EXPECT_EQ(parse("", {"data.template=\"<image>\\n{caption}\""}).data.prompt_template, "<image>\n{caption}");
  EXPECT_EQ(parse("", {"data.path=[a, b]"}).data.path, (Strings{"a", "b"}));
  EXPECT_EQ(parse("data: {path: [x]}", {"data.path=[]"}).data.path, Strings{});
  EXPECT_EQ(parse("", {"train.run_dir=a=b"}).train.run_dir, "a=b");
}

TEST(ConfigOverrides, TheLastOfTheSameKeyCountsWithANote) {
  const LoadedConfig loaded = parse_config("", "", {"train.seed=1", "train.seed=2"});
  EXPECT_EQ(loaded.config.train.seed, 2);
  ASSERT_EQ(loaded.notes.size(), 1u);
  EXPECT_NE(loaded.notes[0].find("train.seed"), std::string::npos);
}

TEST(ConfigOverrides, AutoGivesTheValueBack) {
  EXPECT_FALSE(parse("train: {steps: 5}", {"train.steps=auto"}).train.steps.has_value());
  EXPECT_FALSE(
      parse("data: {decoder_threads: 5}", {"data.decoder_threads="}).data.decoder_threads.has_value());
}

Config varied() {
  Config c = parse(R"(
model: {text: {hidden_size: 64, "odd key: x": {deep: [1, {a: null}]}, empty: {}, s: "true", f: 1e-300}, vision: {a: "line\nbreak \" \u00e9"}, freeze: [a, "*.b"]}
data: {path: ["x y", "12", "~", "null", "- a", "#c", "on"], template: "<image>\t{caption}\r\n", decoder_threads: 2}
train: {learning_rate: 0.1, min_learning_rate: 1.7976931348623157e+1, beta2: 0.98765432109876543, steps: 9007199254740992, epsilon: 5e-324,
        groups: [{match: "a b", learning_rate_scale: 0.333333333333333333, weight_decay: 0.1}, {match: c}]}
ecm: {max_write_bandwidth: 3T, level0_path: "/dev/shm/é", level0_partner: off}
)",
                   {"train.learning_rate=99.999999999999986"});
  return c;
}

TEST(ConfigText, YamlAndJsonReadBackEqual) {
  for (const Config& c : {Config(), varied()}) {
    EXPECT_EQ(parse(to_yaml(c)), c) << to_yaml(c);
    EXPECT_EQ(config_from_json(json::parse(to_json(c).dump()), "stored"), c);
    EXPECT_EQ(to_yaml(parse(to_yaml(c))), to_yaml(c));
  }
}

TEST(ConfigText, StoredJsonIsCheckedToo) {
  json stored = to_json(Config());
  stored["train"]["stesp"] = 1;
  stored["train"]["seed"] = "x";
  try {
    config_from_json(stored, "step-7/config");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.mistakes().size(), 2u);
    EXPECT_NE(std::string(error.what()).find("step-7/config"), std::string::npos);
  }
  for (const json& other : {json(3), json("x"), json::array({1})})
    EXPECT_THROW(config_from_json(other, "x"), ConfigError);
  EXPECT_EQ(config_from_json(json(), "x"), Config());  // older versions had fewer keys: the rest is default
}

TEST(ConfigText, EffectiveValuesNameEveryKey) {
  const LoadedConfig loaded = parse_config("train:\n  seed: 7\n", "a.yaml", {"model.text.a=1"});
  std::map<std::string, EffectiveValue> values;
  for (const EffectiveValue& value : effective_values(loaded)) values[value.key] = value;
  for (const ConfigKey& key : config_schema())
    EXPECT_TRUE(values.count(key.name) || key.name == "model.text") << key.name;
  EXPECT_EQ(values["train.seed"].value, "7");
  EXPECT_EQ(values["train.seed"].source, "a.yaml:2");
  EXPECT_EQ(values["model.text.a"].source, "command line");
  EXPECT_EQ(values["train.steps"].value, "auto");
  EXPECT_FALSE(values["hpgc.grad_clip_ratio"].in_force);
  EXPECT_NE(format_effective_values(loaded).find("(not in force)"), std::string::npos);
}

TEST(ConfigDiff, NamesKeysAndWhetherTheyAreSafe) {
  EXPECT_TRUE(diff_config(varied(), varied()).empty());
  const Config a = parse("model: {text: {h: 1, gone: 2, same: 3}}\ntrain: {steps: 5}");
  const Config b = parse("model: {text: {h: 4, new: {x: 5}, same: 3}}\ntrain: {seed: 6}\ndata: {path: p}");
  std::vector<std::string> lines;
  for (const ConfigDifference& d : diff_config(a, b))
    lines.push_back(d.key + ": " + d.old_value + " > " + d.new_value + (d.safe ? " safe" : ""));
  EXPECT_EQ(lines,
            (Strings{"model.text.gone: 2 > (none)", "model.text.h: 1 > 4", "model.text.new.x: (none) > 5",
                     "data.path: [] > [p] safe", "train.steps: 5 > auto safe", "train.seed: 42 > 6"}));
}

TEST(ConfigDiff, WhatTheLossCurveDependsOnIsNotSafe) {
  for (const char* key :
       {"model.path", "model.text", "model.freeze", "data.eval_shards", "data.max_length",
        "data.template", "data.exact_jpeg", "train.seed", "train.global_batch_samples", "train.learning_rate",
        "train.precision", "train.groups", "train.grad_clip_norm"})
    EXPECT_FALSE(find_config_key(key)->safe) << key;
  for (const char* key :
       {"train.steps", "train.eval_interval", "train.log_interval_s", "parallel.timeout_s",
        "data.decoder_threads", "mdp.prefetch_depth.image", "ecm.snapshot_levels.level0_interval_ms"})
    EXPECT_TRUE(find_config_key(key)->safe) << key;
}

std::filesystem::path source_directory() {
  const char* directory = std::getenv("MSO_SRCDIR");
  if (!directory) directory = std::getenv("srcdir");
  return directory ? directory : ".";
}

TEST(ConfigListings, CommittedFilesAreUpToDate) {
  EXPECT_EQ(read_file(source_directory() / "doc/man/megascale_config.yaml.5"), config_man_page())
      << "run: make update-config-docs";
  EXPECT_EQ(read_file(source_directory() / "etc/megascale_config.yaml"), sample_config())
      << "run: make update-config-docs";
}

TEST(ConfigListings, TheSampleFileIsTheDefaults) {
  EXPECT_EQ(parse(sample_config()), Config());
}

TEST(ConfigListings, ReadyConfigurationsAreAccepted) {
  for (const char* name : {"demo.yaml", "llava_stage1.yaml", "llava_stage2.yaml", "megascale_config.yaml"})
    EXPECT_NO_THROW(load_config(source_directory() / "etc" / name, {})) << name;
}

// Runs in an empty folder, as the default file is looked up in the current one.
class ConfigLookup : public testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    folder_ = std::filesystem::temp_directory_path() / ("mso-config-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(name, std::ios::binary) << text;
  }
  std::filesystem::path before_, folder_;
};

TEST_F(ConfigLookup, TheDefaultNameIsFoundAndTheOldSpellingWithANote) {
  LoadedConfig loaded = load_config("", {});
  EXPECT_EQ(loaded.config, Config());
  EXPECT_EQ(loaded.notes.size(), 1u);  // says that there is no file
  write("megscale_config.yaml", "train: {seed: 1}");
  loaded = load_config("", {});
  EXPECT_EQ(loaded.config.train.seed, 1);
  ASSERT_EQ(loaded.notes.size(), 1u);
  EXPECT_NE(loaded.notes[0].find("megascale_config.yaml"), std::string::npos);
  EXPECT_EQ(load_config("megscale_config.yaml", {}).notes.size(), 1u);
  write("megascale_config.yaml", "train: {seed: 2}");
  loaded = load_config("", {});
  EXPECT_EQ(loaded.config.train.seed, 2);
  EXPECT_EQ(loaded.sources.at("train.seed"), "megascale_config.yaml:1");
  EXPECT_EQ(loaded.notes.size(), 1u);  // the other file is not read
}

TEST_F(ConfigLookup, FilesThatCannotBeRead) {
  for (const char* name : {"missing.yaml", ".", "/dev/null/x"}) {
    try {
      load_config(name, {});
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage) << name;
    }
  }
  write("huge.yaml", std::string(2 << 20, '#'));
  EXPECT_THROW(load_config("huge.yaml", {}), Error);
  write("binary.yaml", std::string("\0\1\2\xff\xfe", 5));
  EXPECT_THROW(load_config("binary.yaml", {}), Error);
}

TEST(DecoderThreads, AreSharedByTheRanksOfANodeAndScaledToTheMachine) {
  Config c;
  EXPECT_EQ(decoder_threads(c, 64, 1).image, 4);
  EXPECT_EQ(decoder_threads(c, 64, 1).video, 8);
  EXPECT_EQ(decoder_threads(c, 64, 1).note, "");
  EXPECT_EQ(decoder_threads(c, 64, 2).image, 2);
  EXPECT_EQ(decoder_threads(c, 64, 8).image, 1);
  EXPECT_EQ(decoder_threads(c, 4, 1).image, 2);
  EXPECT_NE(decoder_threads(c, 4, 1).note, "");
  for (int cores : {-1, 0, 1, 2}) EXPECT_EQ(decoder_threads(c, cores, 2).image, 1);
  c.data.decoder_threads = 3;
  EXPECT_EQ(decoder_threads(c, 2, 2).image, 3);  // asked for by name
  c.data.decoder_threads = 9;
  EXPECT_EQ(decoder_threads(c, 64, 1).image, 4);
  EXPECT_NE(decoder_threads(c, 64, 1).note, "");
}

TEST(SnapshotIntervals, InSecondsWithTheSitesMinimumOnSharedLevels) {
  Config c;
  EXPECT_EQ(snapshot_intervals(c).level0_s, 0.5);
  EXPECT_EQ(snapshot_intervals(c).level1_s, 30);
  EXPECT_EQ(snapshot_intervals(c).level2_s, 300);
  c.ecm.min_shared_interval_s = 60;
  c.ecm.snapshot_levels.level2_interval_m = 0;
  EXPECT_EQ(snapshot_intervals(c).level0_s, 0.5);
  EXPECT_EQ(snapshot_intervals(c).level1_s, 60);
  EXPECT_EQ(snapshot_intervals(c).level2_s, 0);  // off stays off
}

}  // namespace
}  // namespace mso
