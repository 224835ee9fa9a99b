# The unit tests of runtime/node once more, on a kernel with cgroup v2.
cd "$MSO_BUILD" && ./node_tests --gtest_filter='Cgroups.*:ThreadPlace.*:NodeFacts.*'
