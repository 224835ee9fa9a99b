#include "mpi_tests.h"

#include "base/error.h"
#include "base/log.h"

int main(int argc, char** argv) {
  using namespace mso::mpi_tests;
  mso::init_logging("warn");
  const std::string which = argc > 1 ? argv[1] : "";
  try {
    mso::World world;
    if (which == "collectives") {
      test_collectives(world);
      test_concurrency(world);
    } else if (which == "reducer") {
      test_reducer(world);
    } else if (which == "speed") {
      measure_speed(world);
    } else if (which == "world") {
      std::printf("rank %d of %d node %s local %d of %d host rank %d\n", world.rank(), world.size(),
                  world.node().c_str(), world.local_rank(), world.local_size(), world.host_rank());
    } else if (which == "abandon") {
      if (world.rank() == world.size() - 1) world.abandon(5);
      mso::barrier_now(world.communicator(), 60);
    } else if (which == "throw") {
      // An error on one rank must not wait for the others in ~World.
      if (world.rank() == world.size() - 1)
        throw mso::Error("made to fail", "a test", "", mso::ExitCode::kBadData);
      mso::barrier_now(world.communicator(), 60);
    } else {
      test_failure(world, which);
    }
    if (world.rank() == 0) std::printf("%s: passed on %d ranks\n", which.c_str(), world.size());
  } catch (const mso::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return static_cast<int>(e.exit_code());
  }
  return 0;
}
