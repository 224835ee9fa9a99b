# base: what everything else stands on; no torch, no MPI.
# The core needs nothing but the C++ library: the Slurm plugin, which is loaded into Slurm's own programs, links no more.
noinst_LTLIBRARIES += libmso_base.la libmso_base_core.la
libmso_base_core_la_SOURCES = runtime/base/error.cc runtime/base/error.h runtime/base/file.cc runtime/base/file.h \
  runtime/base/joined.h runtime/base/subprocess.cc runtime/base/subprocess.h \
  runtime/base/suggest.cc runtime/base/suggest.h runtime/base/units.cc runtime/base/units.h
libmso_base_la_SOURCES = \
  runtime/base/config.h runtime/base/config_schema.cc runtime/base/config_schema.h \
  runtime/base/config_tree.cc runtime/base/config_tree.h runtime/base/config_parse.cc \
  runtime/base/config_text.cc runtime/base/config_listing.cc \
  runtime/base/glob.cc runtime/base/glob.h \
  runtime/base/hash.cc runtime/base/hash.h \
  runtime/base/host_bytes.cc runtime/base/host_bytes.h \
  runtime/base/host_tensor.cc runtime/base/host_tensor.h \
  runtime/base/json_text.h \
  runtime/base/kill_point.cc runtime/base/kill_point.h \
  runtime/base/log.cc runtime/base/log.h \
  runtime/base/model_config.cc runtime/base/model_config.h \
  runtime/base/partial_folder.cc runtime/base/partial_folder.h \
  runtime/base/random.cc runtime/base/random.h \
  runtime/base/safetensors.cc runtime/base/safetensors.h \
  runtime/base/shell.h \
  runtime/base/simd.h
libmso_base_la_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS) $(YAML_CFLAGS)
libmso_base_la_LIBADD = libmso_base_core.la $(SPDLOG_LIBS) $(YAML_LIBS) $(XXHASH_LIBS)

if HAVE_GTEST
check_PROGRAMS += base_tests
TESTS += base_tests
base_tests_SOURCES = tests/unit/base/random_test.cc tests/unit/base/config_test.cc \
  tests/unit/base/file_test.cc \
  tests/unit/base/safetensors_test.cc tests/unit/base/subprocess_test.cc \
  tests/unit/base/model_config_test.cc tests/unit/base/text_test.cc
base_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS) $(YAML_CFLAGS)
base_tests_LDADD = libmso_base.la $(GTEST_LIBS)
endif
EXTRA_DIST += tests/unit/base/make_safetensors_fixture.py tests/unit/base/fixtures/safetensors/all_types.safetensors \
  tests/unit/base/fixtures/safetensors/sharded/model-00001-of-00002.safetensors \
  tests/unit/base/fixtures/safetensors/sharded/model-00002-of-00002.safetensors \
  tests/unit/base/fixtures/safetensors/sharded/model.safetensors.index.json \
  tests/fuzz/fuzz_safetensors.cc tests/fuzz/corpus/safetensors/all_types tests/fuzz/corpus/safetensors/metadata \
  tests/fuzz/corpus/safetensors/one tests/fuzz/corpus/safetensors/overflow tests/fuzz/corpus/safetensors/overlap
