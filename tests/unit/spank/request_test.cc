// What users and admins write: options, variables, profiles, plugstack arguments, and the text that travels
// to root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "node/job_request.h"
#include "spank/fault.h"
#include "spank/plugin_arguments.h"
#include "spank/user_request.h"

namespace mso {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

RequestSource source(std::initializer_list<std::pair<RequestField, const char*>> values,
                     const char* where = "test") {
  RequestSource result;
  for (const auto& [field, text] : values) result[field] = RequestSource::Value{text, where};
  return result;
}

JobRequest merged(const std::vector<RequestSource>& sources) {
  std::vector<RequestMistake> mistakes;
  JobRequest request = merge_request(sources, "", mistakes);
  EXPECT_THAT(mistakes, IsEmpty()) << (mistakes.empty() ? "" : mistakes[0].where + mistakes[0].message);
  return request;
}

std::vector<RequestMistake> mistakes_of(RequestField field, const std::string& text) {
  RequestSource one;
  one[field] = RequestSource::Value{text, "here"};
  std::vector<RequestMistake> mistakes;
  merge_request({one}, "", mistakes);
  return mistakes;
}

TEST(Merge, TheStrongerSourceWinsFieldByField) {
  const JobRequest request =
      merged({source({{RequestField::kSnapshot, "2G"}}),
              source({{RequestField::kSnapshot, "1G"}, {RequestField::kCheck, "prod"}}),
              source({{RequestField::kCheck, "off"}, {RequestField::kCpus, "image:4,video:8"}})});
  EXPECT_EQ(request.snapshot_bytes, uint64_t{2} << 30);
  EXPECT_EQ(request.check, CheckMode::kProd);
  EXPECT_EQ(request.cpus, (CpuRequest{4, 8}));
}

TEST(Merge, MistakesOfHiddenSourcesAreToldToo) {
  std::vector<RequestMistake> mistakes;
  merge_request(
      {source({{RequestField::kSnapshot, "2G"}}, "a"), source({{RequestField::kSnapshot, "lots"}}, "b")}, "",
      mistakes);
  ASSERT_THAT(mistakes, SizeIs(1));
  EXPECT_EQ(mistakes[0].where, "b");
}

TEST(Merge, AllMistakesAtOnce) {
  std::vector<RequestMistake> mistakes;
  merge_request({source({{RequestField::kSnapshot, "1e99G"},
                         {RequestField::kCheck, "prd"},
                         {RequestField::kCpus, "imag:1"},
                         {RequestField::kGpuSlices, "vison:1G"},
                         {RequestField::kNvme, "image:0x4"}})},
                "", mistakes);
  EXPECT_THAT(mistakes, SizeIs(5));
}

TEST(Snapshot, Sizes) {
  EXPECT_EQ(merged({source({{RequestField::kSnapshot, "1G"}})}).snapshot_bytes, uint64_t{1} << 30);
  EXPECT_EQ(merged({source({{RequestField::kSnapshot, "off"}})}).snapshot_bytes, 0u);
  EXPECT_EQ(merged({source({{RequestField::kSnapshot, "0"}})}).snapshot_bytes, 0u);
  EXPECT_EQ(merged({source({{RequestField::kSnapshot, "auto"}})}).snapshot_bytes, std::nullopt);
  EXPECT_EQ(merged({}).snapshot_bytes, std::nullopt);
  for (const char* bad : {"", " ", "1e99G", "-1", "-1G", "%s", "1GG", "1G;x", "nan", "inf", "0x10", "1,5G",
                          "1K", "17T", "\x01", "99999999999999999999999"})
    EXPECT_THAT(mistakes_of(RequestField::kSnapshot, bad), SizeIs(1)) << bad;
}

TEST(Texts, TooLongIsSaidShort) {
  for (const RequestFieldNames& names : request_fields()) {
    const auto mistakes = mistakes_of(names.field, std::string(10 << 20, 'x'));
    ASSERT_THAT(mistakes, SizeIs(1));
    EXPECT_LT(mistakes[0].message.size(), 200u);
  }
}

TEST(Compact, GoesThroughUnchanged) {
  JobRequest request = merged({source({{RequestField::kSnapshot, "1.5G"},
                                       {RequestField::kCheck, "prod"},
                                       {RequestField::kCpus, "video:8,image:4"},
                                       {RequestField::kGpuSlices, "vision:24G,llm:32G,shared:24G"},
                                       {RequestField::kNvme, "image:1x4,video:2x8"}})});
  request.profile = "large-1_x";
  request.by_option = {true, false, true, false, false};
  std::string why;
  const std::string text = format_request(request);
  const auto read = parse_request(text, why);
  ASSERT_TRUE(read) << why;
  EXPECT_EQ(*read, request);
  EXPECT_EQ(format_request(*read), text);
  EXPECT_LT(text.size(), kMaxRequestLength);
}

TEST(Compact, NothingElseIsTaken) {
  const std::string good = format_request(
      merged({source({{RequestField::kSnapshot, "1G"}, {RequestField::kCpus, "image:4,video:8"}})}));
  std::string why;
  ASSERT_TRUE(parse_request(good, why));
  for (const std::string& bad : {std::string(),
                                 std::string("mso"),
                                 std::string("mso1;"),
                                 std::string("mso2;snapshot=auto;check=off"),
                                 good + ";",
                                 good + " ",
                                 good + ";check=prod",
                                 good + ";profile=../../etc/shadow",
                                 good + ";profile=a/b",
                                 good + ";profile=",
                                 good + ";options=snapshot,",
                                 good + ";options=path",
                                 good + ";run=/etc",
                                 std::string("mso1;snapshot=1G;check=staging"),
                                 std::string("mso1;check=staging;snapshot=auto"),
                                 std::string("mso1;snapshot=01048576;check=staging"),
                                 std::string("mso1;snapshot=-1;check=staging"),
                                 "X" + good,
                                 std::string(5000, ';'),
                                 std::string("mso1;snapshot=auto\0;check=staging", 33)}) {
    why.clear();
    EXPECT_FALSE(parse_request(bad, why)) << bad;
    EXPECT_FALSE(why.empty());
    EXPECT_LT(why.size(), 300u);
  }
  // Every single letter changed: refused, or read and written the same.
  for (size_t i = 0; i < good.size(); ++i)
    for (char c : {'\0', '\n', ';', '=', '9', 'z', '%'}) {
      std::string text = good;
      text[i] = c;
      const auto read = parse_request(text, why);
      EXPECT_TRUE(!read || format_request(*read) == text);
    }
}

TEST(Profile, Names) {
  for (const char* good : {"large", "a", "A-1_b"}) EXPECT_TRUE(is_profile_name(good)) << good;
  for (const char* bad : {"", "-a", "..", "a/b", "../a", "a b", "a.conf", "ä", "a\n"})
    EXPECT_FALSE(is_profile_name(bad)) << bad;
  EXPECT_FALSE(is_profile_name(std::string(65, 'a')));
}

TEST(Profile, LinesWithCommentsAndMistakes) {
  std::vector<RequestMistake> mistakes;
  const RequestSource good =
      parse_profile("# site\nsnapshot = 4G  # each\n\n  gpu-slices=vision:24G\r\n", "large", mistakes);
  EXPECT_THAT(mistakes, IsEmpty());
  EXPECT_EQ(good[RequestField::kSnapshot]->text, "4G");
  EXPECT_EQ(good[RequestField::kGpuSlices]->text, "vision:24G");
  parse_profile("snapshoot = 1G\nnonsense\ncheck=off\ncheck=prod\n", "large", mistakes);
  ASSERT_THAT(mistakes, SizeIs(3));
  EXPECT_EQ(mistakes[0].where, "profile large, line 1");
  EXPECT_THAT(mistakes[0].message, HasSubstr("did you mean snapshot?"));
}

TEST(Variables, KnownAndUnknown) {
  const char* environment[] = {"PATH=/bin",          "MSO_REQUEST_SNAPSHOT=2G",
                               "MSO_REQUEST_CHECK=", "MSO_REQUEST_SNAPSHOTS=1G",
                               "MSO_GPU_SLICES=x",   nullptr};
  std::vector<RequestMistake> mistakes;
  const RequestSource read = read_request_variables(environment, mistakes);
  EXPECT_EQ(read[RequestField::kSnapshot]->text, "2G");
  EXPECT_FALSE(read[RequestField::kCheck]);
  EXPECT_FALSE(read[RequestField::kGpuSlices]);
  ASSERT_THAT(mistakes, SizeIs(1));
  EXPECT_THAT(mistakes[0].message, HasSubstr("did you mean MSO_REQUEST_SNAPSHOT?"));
}

class UserRequest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "mso-profiles";
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "large.conf") << "snapshot = 4G\ncheck = prod\n";
    arguments_.profiles_dir = folder_;
  }
  JobRequest make() {
    mistakes_.clear();
    variables_.push_back(nullptr);
    side_.environment = variables_.data();
    JobRequest request = make_user_request(typed_, arguments_, side_, mistakes_);
    variables_.pop_back();
    return request;
  }
  std::filesystem::path folder_;
  PluginArguments arguments_;
  TypedOptions typed_;
  UserSide side_;
  std::vector<const char*> variables_;
  std::vector<RequestMistake> mistakes_;
};

TEST_F(UserRequest, OptionThenVariableThenProfileThenPlugstack) {
  arguments_.defaults = source({{RequestField::kSnapshot, "8G"},
                                {RequestField::kCheck, "off"},
                                {RequestField::kCpus, "image:1,video:1"}});
  EXPECT_EQ(make().snapshot_bytes, uint64_t{8} << 30);
  typed_.profile = "large";
  EXPECT_EQ(make().snapshot_bytes, uint64_t{4} << 30);
  EXPECT_EQ(make().check, CheckMode::kProd);
  EXPECT_EQ(make().cpus, (CpuRequest{1, 1}));
  variables_ = {"MSO_REQUEST_SNAPSHOT=2G"};
  EXPECT_EQ(make().snapshot_bytes, uint64_t{2} << 30);
  typed_.fields = source({{RequestField::kSnapshot, "1G"}});
  EXPECT_EQ(make().snapshot_bytes, uint64_t{1} << 30);
  EXPECT_EQ(make().profile, "large");
  EXPECT_THAT(mistakes_, IsEmpty());
}

TEST_F(UserRequest, AProfileThatIsNotThere) {
  typed_.profile = "larg";
  make();
  ASSERT_THAT(mistakes_, SizeIs(1));
  EXPECT_THAT(mistakes_[0].message, HasSubstr("did you mean large?"));
  for (const char* bad : {"../mso-profiles/large", "/etc/shadow", "large.conf"}) {
    typed_.profile = bad;
    make();
    ASSERT_THAT(mistakes_, SizeIs(1)) << bad;
    EXPECT_THAT(mistakes_[0].message, HasSubstr("is not a profile's name"));
  }
}

TEST_F(UserRequest, AStepTakesTheJobsRequest) {
  typed_.profile = "large";
  typed_.fields = source({{RequestField::kSnapshot, "1G"}});
  side_.inherited = format_request(make());
  typed_ = {};
  std::filesystem::remove(folder_ / "large.conf");  // as on a node without profiles
  JobRequest request = make();
  EXPECT_THAT(mistakes_, IsEmpty());
  EXPECT_EQ(request.snapshot_bytes, uint64_t{1} << 30);
  EXPECT_EQ(request.check, CheckMode::kProd);
  EXPECT_EQ(request.profile, "large");
  // A variable of the script is stronger than the job's profile, weaker than the job's options.
  variables_ = {"MSO_REQUEST_CHECK=off", "MSO_REQUEST_SNAPSHOT=3G"};
  request = make();
  EXPECT_EQ(request.check, CheckMode::kOff);
  EXPECT_EQ(request.snapshot_bytes, uint64_t{1} << 30);
  // The step's own option is the strongest.
  typed_.fields = source({{RequestField::kSnapshot, "5G"}});
  EXPECT_EQ(make().snapshot_bytes, uint64_t{5} << 30);
  side_.inherited = "mso1;rubbish";
  make();
  EXPECT_THAT(mistakes_, SizeIs(1));
}

TEST_F(UserRequest, MemoryOfTheJob) {
  typed_.fields = source({{RequestField::kSnapshot, "1G"}});
  const auto refused = [&](std::vector<std::string> words) {
    side_.command_line = std::move(words);
    make();
    return !mistakes_.empty();
  };
  EXPECT_TRUE(refused({"srun", "--mem=1G", "prog"}));
  EXPECT_TRUE(refused({"srun", "-N2", "--mem", "512", "prog"}));
  EXPECT_TRUE(refused({"srun", "-n", "4", "--mem=1048576K", "prog"}));
  EXPECT_FALSE(refused({"srun", "--mem=2G", "prog"}));
  EXPECT_FALSE(refused({"srun", "--mem=0", "prog"}));
  EXPECT_FALSE(refused({"srun", "prog", "--mem=1M"}));  // the program's own
  EXPECT_FALSE(refused({"srun", "-n", "2", "prog", "--mem=1M"}));
  EXPECT_FALSE(refused({"srun", "--", "prog", "--mem=1M"}));
  EXPECT_FALSE(refused({"srun"}));
  side_.memory_variable = "SLURM_MEM_PER_NODE";
  variables_ = {"SLURM_MEM_PER_NODE=1024"};
  EXPECT_TRUE(refused({"srun", "prog"}));
  EXPECT_FALSE(refused({"srun", "--mem=3G", "prog"}));
}

TEST_F(UserRequest, MemoryOfABatchScript) {
  typed_.fields = source({{RequestField::kSnapshot, "1G"}});
  const std::string script = (folder_ / "job.sh").string();
  std::ofstream(script)
      << "#!/bin/bash\n#SBATCH -N 2 --mem=512M # small\n\n#SBATCH --time=1\nsrun prog\n#SBATCH --mem=9G\n";
  side_.memory_variable = "SBATCH_MEM_PER_NODE";
  side_.command_line = {"sbatch", "-N2", script, "argument"};
  make();
  EXPECT_THAT(mistakes_, SizeIs(1));
  side_.command_line = {"sbatch", "--mem=4G", script};
  make();
  EXPECT_THAT(mistakes_, IsEmpty());
}

TEST_F(UserRequest, MoreNvmeLanesThanTheAdminAllows) {
  typed_.fields = source({{RequestField::kNvme, "image:2x4,video:1x8"}});
  arguments_ = parse_plugin_arguments({"nvme-max=16"}, {});
  make();
  EXPECT_THAT(mistakes_, IsEmpty());
  arguments_ = parse_plugin_arguments({"nvme-max=15"}, {});
  make();
  ASSERT_THAT(mistakes_, SizeIs(1));
  EXPECT_THAT(mistakes_[0].message, HasSubstr("are 16 lanes, this cluster allows a job 15"));
}

TEST_F(UserRequest, AWrongPlugstackLineIsTold) {
  arguments_ = parse_plugin_arguments({"snapshot-mx=1G", "check=prd", "run=relative"}, {});
  make();
  EXPECT_THAT(mistakes_, SizeIs(3));
  EXPECT_THAT(mistakes_[0].message, HasSubstr("snapshot-max"));
}

TEST_F(UserRequest, MemoryAsSlurmReadsIt) {
  EXPECT_EQ(parse_slurm_memory("512"), uint64_t{512} << 20);
  EXPECT_EQ(parse_slurm_memory("4G"), uint64_t{4} << 30);
  EXPECT_EQ(parse_slurm_memory("4gb"), uint64_t{4} << 30);
  EXPECT_EQ(parse_slurm_memory("1024K"), uint64_t{1} << 20);
  for (const char* bad : {"", "0", "-1", "x", "4X", "4GX", "99999999999999999999", "18446744073709551615T"})
    EXPECT_EQ(parse_slurm_memory(bad), std::nullopt) << bad;
}

TEST(PluginArguments, AllOfThem) {
  const PluginArguments a = parse_plugin_arguments(
      {"run=/run/other/", "profiles=/p", "snapshot-default=2G", "snapshot-max=8G", "snapshot-node-max=25%",
       "lock-timeout=3", "orphans=leave", "faults=allow", "decoder-cgroups=yes", "mps=yes",
       "io-priority=be:7", "nvme-max=16", "nvme-lane-rate=900M", "io-weight=200", "decoder-nice=-15", "snapshot=1G", "check=prod"},
      {"/usr/bin/mso", "/usr/bin/squeue", "/x"});
  EXPECT_THAT(a.mistakes, IsEmpty());
  EXPECT_EQ(a.run_dir, "/run/other");
  EXPECT_EQ(a.snapshot_default, uint64_t{2} << 30);
  EXPECT_EQ(a.snapshot_node_percent, 25);
  EXPECT_EQ(a.lock_timeout_s, 3);
  EXPECT_FALSE(a.kill_orphans);
  EXPECT_TRUE(a.allow_faults && a.decoder_cgroups && a.mps);
  EXPECT_EQ(a.io_priority, "be:7");
  EXPECT_EQ(a.nvme_max, 16);
  EXPECT_EQ(a.nvme_lane_rate, uint64_t{900} << 20);
  EXPECT_EQ(a.io_weight, 200);
  EXPECT_EQ(a.decoder_nice, -15);
  EXPECT_EQ(a.squeue, "/usr/bin/squeue");
  EXPECT_EQ(a.defaults[RequestField::kSnapshot]->text, "1G");
}

TEST(PluginArguments, NoneIsTheDefaultAndEveryMistakeIsNamed) {
  EXPECT_THAT(parse_plugin_arguments({}, {}).mistakes, IsEmpty());
  EXPECT_EQ(parse_plugin_arguments({}, {}).decoder_nice, std::nullopt);  // no user's priority is raised unasked
  EXPECT_EQ(parse_plugin_arguments({"decoder-nice=-5", "decoder-nice=no"}, {}).decoder_nice, std::nullopt);
  for (const char* bad : {"run=", "run=/", "run=tmp", "run=/run/../etc", "snapshot-max=0",
                          "snapshot-node-max=101%", "snapshot-node-max=%", "lock-timeout=0", "orphans=yes",
                          "faults", "io-priority=rt:0", "nvme-max=0", "nvme-max=x", "io-priority=be:8", "nvme-lane-rate=1", "io-weight=0", "io-weight=10001",
                          "decoder-nice=", "decoder-nice=10", "decoder-nice=0", "decoder-nice=-0", "decoder-nice=-21", "decoder-nice=--5", "decoder-nice=- 5",
                          "decoder-nice=-5x", "decoder-nice=yes", "check=maybe", "what", "="})
    EXPECT_THAT(parse_plugin_arguments({bad}, {}).mistakes, SizeIs(1)) << bad;
}

TEST(Faults, OnlyWhatIsWellFormed) {
  EXPECT_EQ(parse_fault("task_init").hook, "task_init");
  EXPECT_EQ(parse_fault("exit:foreign").kind, Fault::Kind::kForeign);
  EXPECT_EQ(parse_fault(std::string(1000, 'a')).hook, "");
  EXPECT_NO_THROW(raise_fault(parse_fault(""), ""));
  EXPECT_ANY_THROW(raise_fault(parse_fault("exit"), "exit"));
}

}  // namespace
}  // namespace mso
