# Command line tests (bats; env MSO is the program) and the fuzz target of the configuration with its seeds.
EXTRA_DIST += tests/cli/config.bats tests/cli/plan.bats \
  tests/fuzz/fuzz_config.cc tests/fuzz/corpus/config/demo.yaml tests/fuzz/corpus/config/llava_stage1.yaml \
  tests/fuzz/corpus/config/mistakes tests/fuzz/corpus/config/overrides tests/fuzz/corpus/config/recursive \
  tests/fuzz/corpus/config/sample
