// The MPI test program: cases run on all ranks together; a failed check ends the rank with exit code 1.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "comm/world.h"

#define MSO_CHECK(CONDITION)                                                                  \
  do {                                                                                        \
    if (!(CONDITION)) {                                                                       \
      std::fprintf(stderr, "%s:%d: rank check failed: %s\n", __FILE__, __LINE__, #CONDITION); \
      std::_Exit(1);                                                                          \
    }                                                                                         \
  } while (false)

namespace mso::mpi_tests {

// Every operation against a computation of its own, in all types and many sizes.
void test_collectives(World& world);
// Several groups used by several threads at once, operations finished out of order, cancelled operations.
void test_concurrency(World& world);
void test_reducer(World& world);
// `mode` "silent" (last rank stops itself), "killed", "mismatch", "sizes", "cancel".
void test_failure(World& world, const std::string& mode);
// Prints times; not a test.
void measure_speed(World& world);

}  // namespace mso::mpi_tests
