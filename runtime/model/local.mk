# model: stages, graph, layers; Hugging Face configuration and weights. What needs no torch is a library of its own, so
# that plans, listings and exports are built without it.
noinst_LTLIBRARIES += libmso_model_files.la
libmso_model_files_la_SOURCES = \
  runtime/model/hf_config.cc runtime/model/hf_config.h \
  runtime/model/hf_export.cc runtime/model/hf_export.h \
  runtime/model/hf_names.cc runtime/model/hf_names.h \
  runtime/model/model_options.cc runtime/model/model_options.h \
  runtime/model/parameters.cc runtime/model/parameters.h
libmso_model_files_la_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS)

if BUILD_TRAIN
noinst_LTLIBRARIES += libmso_model.la
libmso_model_la_SOURCES = \
  runtime/model/clip_embedder.cc runtime/model/clip_embedder.h \
  runtime/model/clip_vision.cc runtime/model/clip_vision.h \
  runtime/model/encoder_layer.cc runtime/model/encoder_layer.h \
  runtime/model/flat_parameters.cc runtime/model/flat_parameters.h \
  runtime/model/kernels.cc runtime/model/kernels.h \
  runtime/model/linear.cc runtime/model/linear.h \
  runtime/model/llama_decoder.cc runtime/model/llama_decoder.h \
  runtime/model/llava.cc runtime/model/llava.h \
  runtime/model/loss.cc runtime/model/loss.h \
  runtime/model/ops.cc runtime/model/ops.h \
  runtime/model/pool_grid.cc runtime/model/pool_grid.h \
  runtime/model/projector.cc runtime/model/projector.h \
  runtime/model/stage.h runtime/model/training_graph.h \
  runtime/model/whisper_encoder.cc runtime/model/whisper_encoder.h
libmso_model_la_CXXFLAGS = $(AM_CXXFLAGS) -Wno-psabi $(TORCH_CFLAGS)
libmso_model_la_LIBADD = $(TORCH_LIBS)
endif

if BUILD_TRAIN
noinst_PROGRAMS += tests/reference/parity
tests_reference_parity_SOURCES = tests/reference/parity.cc
tests_reference_parity_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS) $(TORCH_CFLAGS)
tests_reference_parity_LDADD = libmso_model.la libmso_model_files.la libmso_memory.la libmso_optimizer.la libmso_comm.la libmso_node.la libmso_base.la $(TORCH_LIBS)
endif

if BUILD_TRAIN
noinst_PROGRAMS += tests/reference/clip_features
tests_reference_clip_features_SOURCES = tests/reference/clip_features.cc
tests_reference_clip_features_CXXFLAGS = $(AM_CXXFLAGS)
tests_reference_clip_features_LDADD = libmso_model.la libmso_model_files.la libmso_memory.la libmso_comm.la libmso_node.la libmso_base.la $(TORCH_LIBS)
endif

if BUILD_TRAIN
EXTRA_PROGRAMS += contrib/bench/model_bench
contrib_bench_model_bench_SOURCES = contrib/bench/model_bench.cc
contrib_bench_model_bench_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS) $(TORCH_CFLAGS)
contrib_bench_model_bench_LDADD = libmso_model.la libmso_model_files.la libmso_memory.la libmso_optimizer.la libmso_comm.la libmso_node.la libmso_base.la $(TORCH_LIBS)
endif
EXTRA_DIST += contrib/bench/peer_model.py tests/reference/make_reference.py tests/reference/export_reference.py tests/reference/clip_reference.py \
  tests/reference/README.md \
  tests/reference/cases/llava_tiny/case.json tests/reference/cases/llava_tiny/config.json \
  tests/reference/cases/llava_tiny/expected.safetensors tests/reference/cases/llava_tiny/inputs.safetensors \
  tests/reference/cases/llava_tiny/model.safetensors \
  tests/reference/cases/omni_tiny/case.json tests/reference/cases/omni_tiny/config.json \
  tests/reference/cases/omni_tiny/expected.safetensors tests/reference/cases/omni_tiny/inputs.safetensors \
  tests/reference/cases/omni_tiny/model.safetensors

if BUILD_IO
noinst_PROGRAMS += tests/reference/export_model
tests_reference_export_model_SOURCES = tests/reference/export_model.cc
tests_reference_export_model_CXXFLAGS = $(AM_CXXFLAGS)
tests_reference_export_model_LDADD = libmso_io.la libmso_model_files.la libmso_comm.la libmso_node.la libmso_base.la
endif

if HAVE_GTEST
check_PROGRAMS += model_files_tests
TESTS += model_files_tests
model_files_tests_SOURCES = tests/unit/model/hf_config_test.cc
model_files_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS)
model_files_tests_LDADD = libmso_model_files.la libmso_comm.la libmso_node.la libmso_base.la $(GTEST_LIBS)
if BUILD_TRAIN
check_PROGRAMS += model_tests
TESTS += model_tests
model_tests_SOURCES = tests/unit/model/graph_test.cc tests/unit/model/kernels_test.cc \
  tests/unit/model/omni_graph_test.cc tests/unit/model/pool_grid_test.cc
model_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(TORCH_CFLAGS)
model_tests_LDADD = libmso_model.la libmso_model_files.la libmso_memory.la libmso_comm.la libmso_node.la libmso_base.la $(TORCH_LIBS) $(GTEST_LIBS)
endif
endif
