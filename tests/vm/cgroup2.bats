#!/usr/bin/env bats
# What needs a machine with cgroup v2: decoder threads held by threaded children.

load common
setup() { vm_setup; }

@test "a decoder thread is held by its threaded child, which the user cannot widen, and which goes before the step's" {
  [ -x "$MSO_BUILD/node_tests" ] || skip "node_tests is not built (make check TESTS=)"
  vm --timeout 1500 -- node_tests.sh
  [ "$status" -eq 0 ]
  [[ $output == *"[       OK ] Cgroups.ADecoderThreadIsHeldByItsThreadedChild"* ]]
  [[ $output == *"[       OK ] ThreadPlace.AUsersDecodersAreRaisedAsFarAsRootPermits"* ]]
}
