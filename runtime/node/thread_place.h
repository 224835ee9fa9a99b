// Puts the calling thread where the plugin said threads of its kind belong: CPUs, cgroup, I/O priority.
#pragma once

#include <string>

#include "node/cpu_list.h"

namespace mso {

enum class ThreadClass { kCompute, kImage, kVideo };

inline constexpr const char* kImageCpusVariable = "MSO_CPUS_IMAGE";
inline constexpr const char* kVideoCpusVariable = "MSO_CPUS_VIDEO";
inline constexpr const char* kComputeCpusVariable = "MSO_CPUS_COMPUTE";
// A cgroup made for the threads of a class (v1: folder in the cpuset tree; v2: a threaded child); unset: none.
inline constexpr const char* kImageCgroupVariable = "MSO_CGROUP_IMAGE";
inline constexpr const char* kVideoCgroupVariable = "MSO_CGROUP_VIDEO";
// "be:0" … "be:7", "idle": I/O priority of decoder threads; unset: left alone.
inline constexpr const char* kIoPriorityVariable = "MSO_IO_PRIORITY";
// "nice:-20" … "nice:19", "rr:1" … "rr:49" (SCHED_RR: before every ordinary thread of the machine), "normal". Unset: nice -10, or as far
// towards it as is permitted, for decoders with CPUs of their own, so that what else runs there cannot push them aside; else left alone.
inline constexpr const char* kDecoderPriorityVariable = "MSO_DECODER_PRIORITY";

// Reads the variables above. Nothing set: nothing done, empty. Otherwise empty on success, else one sentence on what the
// kernel refused (for the log: the thread goes on where it is).
std::string place_this_thread(ThreadClass thread_class);

// ioprio_set(2) for the calling thread; false with errno, or for text that is no priority.
bool set_io_priority(const std::string& text);

// A value of MSO_DECODER_PRIORITY for the calling thread; false with errno, or for text that is none.
bool set_thread_priority(const std::string& text);

// nice of decoders with CPUs of their own, where nothing else is said.
inline constexpr int kDecoderNice = -10;

// The calling thread to kDecoderNice, or as far towards it as RLIMIT_NICE permits; false where it stays as it was.
bool raise_thread_priority();

// Lets the calling process, and what it starts, have a nice as low as this one (-20 … 19) when it is no longer root's: soft and hard
// RLIMIT_NICE, which are never lowered. False with errno.
bool permit_nice(int nice);

// How many decoder threads the sets of the environment make room for; 0: the plugin gave none.
int decoder_cpus_given(ThreadClass thread_class);

}  // namespace mso
