#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <vector>

#include "base/error.h"
#include "mpi_tests.h"

namespace mso::mpi_tests {

namespace {

// Ends all ranks without MPI_Finalize, which would wait for the one that cannot.
[[noreturn]] void leave(World& world, const char* text) {
  std::printf("%s\n", text);
  world.abandon(0);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    MSO_CHECK(e.exit_code() == ExitCode::kPeerLost);
    return e.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "'%s' is not in: %s\n", part.c_str(), text.c_str());
  return false;
}

}  // namespace

void test_failure(World& world, const std::string& mode) {
  Communicator& all = world.communicator();
  auto group = all.split(0, all.rank(), "data parallel");
  const int last = all.size() - 1;
  const bool victim = all.rank() == last;
  const std::string name = "rank " + std::to_string(last) + " did not answer";
  std::vector<float> data(200000, 1), out(200000);
  barrier_now(all, 60);

  if (mode == "silent" || mode == "killed") {
    if (victim) raise(mode == "silent" ? SIGSTOP : SIGKILL);
    // Every kind of operation says in time who is missing and what for.
    const double timeout_s = 0.3;
    std::string text =
        error_of([&] { all_reduce_now(*group, data.data(), 10, DType::kF32, ReduceOp::kSum, timeout_s); });
    MSO_CHECK(contains(text, name) && contains(text, "all-reduce") && contains(text, "'data parallel'"));
    text = error_of(
        [&] { all_reduce_now(*group, data.data(), data.size(), DType::kF32, ReduceOp::kSum, timeout_s); });
    MSO_CHECK(contains(text, name));
    std::vector<size_t> counts(all.size(), 1000);
    text = error_of([&] {
      group->reduce_scatter(data.data(), out.data(), counts, DType::kF32, ReduceOp::kSum)
          ->wait(deadline_in(timeout_s));
    });
    MSO_CHECK(contains(text, name) && contains(text, "reduce-scatter"));
    text = error_of([&] {
      group->all_gather(data.data(), out.data(), counts, DType::kF32)->wait(deadline_in(timeout_s));
    });
    MSO_CHECK(contains(text, name) && contains(text, "all-gather"));
    text = error_of([&] { broadcast_now(*group, data.data(), 4000, last, timeout_s); });
    MSO_CHECK(contains(text, "broadcast") && contains(text, "did not answer"));
    text = error_of([&] { barrier_now(*group, timeout_s); });
    MSO_CHECK(contains(text, "barrier") && contains(text, "did not answer"));
    text = error_of([&] { group->receive(data.data(), 4, last, 9)->wait(deadline_in(timeout_s)); });
    MSO_CHECK(contains(text, name) && contains(text, "receive with tag 9"));
    // A message too large for MPI to buffer waits for the receiver.
    text =
        error_of([&] { group->send(data.data(), data.size() * 4, last, 9)->wait(deadline_in(timeout_s)); });
    MSO_CHECK(contains(text, name) && contains(text, "send with tag 9"));
    if (all.rank() == 0 && mode == "silent") leave(world, "silent: passed");
    if (all.rank() == 0) std::printf("killed: passed\n");
    std::fflush(stdout);
    world.abandon(0);
  }

  if (mode == "mismatch") {
    // Ranks whose programs differ: the message says what the other one does.
    if (victim) {
      group->all_gather(data.data(), out.data(), std::vector<size_t>(all.size(), 10), DType::kF32)->test();
    } else {
      const std::string text =
          error_of([&] { all_reduce_now(*group, data.data(), 10, DType::kF32, ReduceOp::kSum, 1); });
      MSO_CHECK(contains(text, name) && contains(text, "has sent all-gather (operation 0)"));
    }
    barrier_now(all, 60);  // another group is not touched by it
    return;
  }

  if (mode == "sizes") {
    // The same operation with different sizes is noticed by at least one side, before any deadline.
    std::string text;
    try {
      broadcast_now(*group, data.data(), victim ? 400 : 800, 0, 1);
    } catch (const Error& e) {
      text = e.what();
    }
    if (victim) MSO_CHECK(contains(text, "broadcast") || contains(text, "MPI failed"));
    barrier_now(all, 60);
    return;
  }

  throw Error("no such test", mode,
              "collectives, reducer, world, abandon, throw, silent, killed, mismatch, sizes, speed",
              ExitCode::kBadUsage);
}

}  // namespace mso::mpi_tests
