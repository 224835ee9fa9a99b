// CPU sets: what is promised for every allocation, and what comes out for some machines.
#include "node/cpu_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "config.h"
#include "node/node_facts_read.h"

namespace mso {
namespace {

// `numas` nodes of `cores` cores with `threads` hardware threads, numbered as Linux does: first threads of all cores, then
// the second ones.
std::vector<CpuFact> machine(int numas, int cores, int threads) {
  std::vector<CpuFact> cpus;
  for (int t = 0; t < threads; ++t)
    for (int c = 0; c < numas * cores; ++c) cpus.push_back({t * numas * cores + c, c, c / cores});
  return cpus;
}

CpuSet all_of(const std::vector<CpuFact>& cpus) {
  CpuSet set;
  for (const CpuFact& cpu : cpus) set.push_back(cpu.cpu);
  return set;
}

CpuSet list(const char* text) { return *parse_cpu_list(text); }

TEST(CpuList, ReadsWhatLinuxWrites) {
  EXPECT_EQ(list("0-3,8"), (CpuSet{0, 1, 2, 3, 8}));
  EXPECT_EQ(list(" 5,0-1,1-2\n"), (CpuSet{0, 1, 2, 5}));
  EXPECT_EQ(list(""), CpuSet{});
  EXPECT_EQ(list("\n"), CpuSet{});
  EXPECT_EQ(format_cpu_list({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(format_cpu_list({}), "");
  for (const char* bad : {"a", "1,", ",1", "3-1", "1-", "-1", "1--2", "8192", "99999999999999999999", "0-8192", "1 2", "0x1", "1:2"})
    EXPECT_FALSE(parse_cpu_list(bad)) << bad;
  EXPECT_FALSE(parse_cpu_list(std::string(1 << 20, '1')));
  EXPECT_EQ(list("8191"), CpuSet{8191});
}

TEST(CpuList, SetsAreSets) {
  EXPECT_EQ(cpu_union({1, 3}, {2, 3}), (CpuSet{1, 2, 3}));
  EXPECT_EQ(cpu_intersection({1, 3}, {2, 3}), CpuSet{3});
  EXPECT_EQ(cpu_difference({1, 3}, {2, 3}), CpuSet{1});
  EXPECT_TRUE(cpu_subset({}, {1}));
  EXPECT_FALSE(cpu_subset({2}, {1}));
}

TEST(CpuRequest, IsParsedWithAllItsMistakes) {
  std::vector<std::string> mistakes;
  EXPECT_EQ(parse_cpu_request("image:4,video:8", mistakes), (CpuRequest{4, 8}));
  EXPECT_EQ(parse_cpu_request("video:8", mistakes), (CpuRequest{0, 8}));
  EXPECT_EQ(format_cpu_request({4, 8}), "image:4,video:8");
  EXPECT_TRUE(mistakes.empty());
  EXPECT_FALSE(parse_cpu_request("imag:4,video:-1,video:1,x", mistakes));
  ASSERT_EQ(mistakes.size(), 3u);
  EXPECT_NE(mistakes[0].find("did you mean image?"), std::string::npos);
  for (const char* bad : {"", "image", "image:", ":4", "image:4,", "image:4,image:4", "image:4097", "image:1e3", "image: 4", "image:4 ",
                          "image:99999999999999999999", "image:%s", "image:+4"}) {
    mistakes.clear();
    EXPECT_FALSE(parse_cpu_request(bad, mistakes)) << bad;
    EXPECT_FALSE(mistakes.empty()) << bad;
  }
  mistakes.clear();
  EXPECT_FALSE(parse_cpu_request(std::string(10 << 20, 'x') + ":1", mistakes));
  EXPECT_FALSE(parse_cpu_request("image:" + std::string(900, '\n'), mistakes));
  for (const std::string& mistake : mistakes) {
    EXPECT_LT(mistake.size(), 200u);
    EXPECT_TRUE(std::ranges::all_of(mistake, [](char c) { return c >= ' ' && c <= '~'; }));
  }
}

// Every promise of cpu_sets.h, for one input.
void expect_promises(const CpuSetInput& input, const std::string& what) {
  SCOPED_TRACE(what);
  const CpuSetPlan plan = plan_cpu_sets(input);
  ASSERT_EQ(plan.tasks.size(), input.tasks.size());
  std::map<int, int> core_of;
  for (int cpu : input.allocated) core_of[cpu] = 10000 + cpu;
  for (const CpuFact& fact : input.cpus)
    if (core_of.contains(fact.cpu)) core_of[fact.cpu] = fact.core;
  std::set<int> cores, used;
  for (const auto& [cpu, core] : core_of) cores.insert(core);
  const int tasks = static_cast<int>(input.tasks.size()), count = static_cast<int>(cores.size());
  const bool enough = input.request.image + input.request.video + tasks <= count;

  std::map<int, std::set<std::string>> classes_of_core;
  std::map<int, std::set<int>> tasks_of_core;
  std::set<int> image_cores, video_cores;
  for (int t = 0; t < tasks; ++t) {
    const TaskCpus& task = plan.tasks[static_cast<size_t>(t)];
    for (const auto& [name, set] : {std::pair("compute", task.compute), {"image", task.image}, {"video", task.video}}) {
      ASSERT_FALSE(set.empty()) << name;
      EXPECT_TRUE(std::ranges::is_sorted(set));
      EXPECT_TRUE(cpu_subset(set, input.allocated)) << name << " " << format_cpu_list(set);
      for (int cpu : set) {
        used.insert(cpu);
        // Whole cores: the other allocated threads of the core are in the set too.
        for (const auto& [other, core] : core_of) {
          if (core == core_of[cpu]) {
            EXPECT_TRUE(std::ranges::binary_search(set, other)) << name;
          }
        }
        const bool on_compute = set == task.compute && std::string(name) != "compute";
        if (!on_compute) classes_of_core[core_of[cpu]].insert(name);
        if (std::string(name) == "compute") tasks_of_core[core_of[cpu]].insert(t);
        if (std::string(name) == "image" && !on_compute) image_cores.insert(core_of[cpu]);
        if (std::string(name) == "video" && !on_compute && set != task.image) video_cores.insert(core_of[cpu]);
      }
    }
  }
  EXPECT_EQ(used.size(), input.allocated.size()) << "every allocated CPU is used";
  EXPECT_EQ(static_cast<int>(image_cores.size()), plan.given.image);
  EXPECT_EQ(static_cast<int>(video_cores.size()), plan.given.video);
  if (enough) {
    EXPECT_EQ(plan.given, input.request);
    EXPECT_EQ(plan.note, "");
    for (const auto& [core, names] : classes_of_core) EXPECT_EQ(names.size(), 1u) << "core " << core;
    for (const auto& [core, who] : tasks_of_core) EXPECT_EQ(who.size(), 1u) << "core " << core;
  } else {
    EXPECT_NE(plan.note, "");
    EXPECT_EQ(plan.note.find('\n'), std::string::npos);
    EXPECT_LE(plan.given.image + plan.given.video, std::max(count / 2, 0));
    EXPECT_LE(plan.given.image, input.request.image);
    EXPECT_LE(plan.given.video, input.request.video);
  }
  const CpuSetPlan again = plan_cpu_sets(input);
  EXPECT_EQ(again.tasks, plan.tasks);
}

TEST(CpuSets, KeepTheirPromisesForEverySmallAllocation) {
  const std::vector<CpuFact> cpus = machine(2, 2, 2);  // 8 CPUs
  for (unsigned mask = 1; mask < 256; ++mask) {
    CpuSetInput input;
    input.cpus = cpus;
    for (int cpu = 0; cpu < 8; ++cpu)
      if (mask >> cpu & 1) input.allocated.push_back(cpu);
    for (int tasks = 1; tasks <= 5; ++tasks)
      for (int image = 0; image <= 3; ++image)
        for (int video = 0; video <= 3; ++video)
          for (int place = -1; place <= 1; ++place) {
            input.request = {image, video};
            input.tasks.assign(static_cast<size_t>(tasks), TaskPlace{place, -1, place >= 0 ? 1 - place : -1});
            expect_promises(input, "mask " + std::to_string(mask) + " tasks " + std::to_string(tasks) + " image " +
                                       std::to_string(image) + " video " + std::to_string(video) + " place " + std::to_string(place));
            if (HasFailure()) return;
          }
  }
}

TEST(CpuSets, KeepTheirPromisesOnOtherMachines) {
  for (const auto& cpus : {machine(1, 1, 1), machine(1, 16, 1), machine(4, 3, 2), machine(8, 2, 1), machine(2, 24, 2)})
    for (int tasks : {1, 2, 3, 7, 8, 16})
      for (int image : {0, 1, 4, 13})
        for (int video : {0, 2, 8, 64}) {
          CpuSetInput input;
          input.cpus = cpus;
          input.allocated = all_of(cpus);
          input.request = {image, video};
          for (int t = 0; t < tasks; ++t) input.tasks.push_back({t % 3 - 1, -1, -1});
          expect_promises(input, std::to_string(cpus.size()) + " CPUs, " + std::to_string(tasks) + " tasks, " + std::to_string(image) +
                                     "," + std::to_string(video));
          if (HasFailure()) return;
          input.cpus.clear();  // a node whose topology nobody knows
          expect_promises(input, "unknown topology");
          if (HasFailure()) return;
        }
}

TEST(CpuSets, AreNearTheGpusOfAnEightGpuNode) {
  // Two sockets of 48 cores with two threads each, four GPUs at each.
#ifdef MSO_HAVE_HWLOC
  const std::vector<CpuFact> cpus = read_cpus("pack:2 [numa] core:48 pu:2");
#else
  GTEST_SKIP() << "built without hwloc";
  const std::vector<CpuFact> cpus = machine(2, 48, 2);
#endif
  ASSERT_EQ(cpus.size(), 192u);
  CpuSetInput input;
  input.cpus = cpus;
  input.allocated = all_of(cpus);
  input.request = {16, 24};
  for (int gpu = 0; gpu < 8; ++gpu) input.tasks.push_back({gpu / 4, -1, -1});
  const CpuSetPlan plan = plan_cpu_sets(input);
  EXPECT_EQ(plan.note, "");
  for (int gpu = 0; gpu < 8; ++gpu) {
    const TaskCpus& task = plan.tasks[static_cast<size_t>(gpu)];
    const CpuSet near = cpus_of_numa(cpus, gpu / 4);
    EXPECT_TRUE(cpu_subset(task.compute, near)) << gpu;
    EXPECT_TRUE(cpu_subset(task.image, near)) << gpu;
    EXPECT_TRUE(cpu_subset(task.video, near)) << gpu;
    EXPECT_EQ(task.image.size(), 2u * 2u);    // 16 cores over 8 tasks, two threads each
    EXPECT_EQ(task.video.size(), 3u * 2u);
    EXPECT_EQ(task.compute.size(), 7u * 2u);  // (96 - 40) / 8
  }
  // Pictures from a drive at the other socket.
  input.request = {16, 0};
  for (TaskPlace& place : input.tasks) place.image = 1;
  const CpuSetPlan far = plan_cpu_sets(input);
  for (const TaskCpus& task : far.tasks) EXPECT_TRUE(cpu_subset(task.image, cpus_of_numa(cpus, 1)));
  EXPECT_TRUE(cpu_subset(far.tasks[0].compute, cpus_of_numa(cpus, 0)));
}

TEST(CpuSets, FewerDecoderCoresThanTasksAreSharedByNeighbours) {
  CpuSetInput input;
  input.cpus = machine(2, 8, 1);
  input.allocated = all_of(input.cpus);
  input.request = {2, 4};
  for (int t = 0; t < 8; ++t) input.tasks.push_back({t / 4, -1, -1});
  const CpuSetPlan plan = plan_cpu_sets(input);
  for (size_t t = 0; t < 8; ++t) {
    EXPECT_EQ(plan.tasks[t].image, plan.tasks[t / 4 * 4].image);
    EXPECT_EQ(plan.tasks[t].video, plan.tasks[t / 2 * 2].video);
  }
  EXPECT_NE(plan.tasks[0].image, plan.tasks[4].image);
}

TEST(CpuSets, TooFewCoresAreSaidInOneLine) {
  CpuSetInput input;
  input.cpus = machine(1, 2, 1);
  input.allocated = {0, 1};
  input.request = {4, 8};
  input.tasks.resize(2);
  const CpuSetPlan plan = plan_cpu_sets(input);
  EXPECT_EQ(plan.tasks[0], (TaskCpus{{0}, {0}, {0}}));
  EXPECT_EQ(plan.tasks[1], (TaskCpus{{1}, {1}, {1}}));
  EXPECT_EQ(plan.note,
            "image:4,video:8 asked beside one core for each of 2 tasks, but there are 2 cores (CPUs 0-1): decoding shares the compute cores");
  input.tasks.resize(1);
  const CpuSetPlan one = plan_cpu_sets(input);
  EXPECT_EQ(one.tasks[0], (TaskCpus{{0}, {1}, {1}}));
  EXPECT_NE(one.note.find("pictures and videos share one decoder core"), std::string::npos) << one.note;
  input.tasks.resize(3);
  EXPECT_NE(plan_cpu_sets(input).note.find("tasks share cores"), std::string::npos);
  input.cpus = machine(1, 12, 1);
  input.allocated = all_of(input.cpus);
  EXPECT_NE(plan_cpu_sets(input).note.find("scaled down to image:2,video:4"), std::string::npos) << plan_cpu_sets(input).note;
  input.tasks.clear();
  EXPECT_THROW(plan_cpu_sets(input), Error);
  input.tasks.resize(1);
  input.allocated.clear();
  EXPECT_THROW(plan_cpu_sets(input), Error);
}

}  // namespace
}  // namespace mso
