# io: shards, samples, decoders, tokenizers, batch assembly; no torch, no MPI.
EXTRA_DIST += \
  contrib/bench/decode_bench.py \
  tests/fuzz/corpus/chat_template \
  tests/fuzz/corpus/conversation \
  tests/fuzz/fuzz_chat_template.cc \
  tests/fuzz/fuzz_conversation.cc \
  tests/fuzz/corpus/image \
  tests/fuzz/fuzz_image.cc \
  tests/reference/image_processor_reference.py \
  tests/reference/served.py \
  tests/reference/loader_reference.py \
  tests/reference/processors_reference.py \
  tests/reference/neighbours_reference.py \
  tests/unit/io/fixtures/image \
  tests/unit/io/fixtures/make_image_fixtures.py \
  tests/unit/io/fixtures/make_processor_fixtures.py \
  tests/unit/io/fixtures/processor

if BUILD_IO
noinst_LTLIBRARIES += libmso_io.la
libmso_io_la_SOURCES = \
  io/anyres.cc io/anyres.h \
  io/audio.cc io/audio.h \
  io/audio_mixer.cc io/audio_mixer.h \
  io/bad_sample.h \
  io/batch_plan.cc io/batch_plan.h \
  io/buffer_pool.cc io/buffer_pool.h \
  io/built_in_chat.cc io/built_in_chat.h \
  io/chat_template.cc io/chat_template.h \
  io/config_keys.h \
  io/caption.cc io/caption.h \
  io/caption_template.cc io/caption_template.h \
  io/category.cc io/category.h \
  io/conversation.cc io/conversation.h \
  io/conversation_encoder.cc io/conversation_encoder.h \
  io/conversation_index.cc io/conversation_index.h \
  io/conversation_packer.cc io/conversation_packer.h \
  io/conversation_sample.cc io/conversation_sample.h \
  io/data_loader.cc io/data_loader.h \
  io/dataset.cc io/dataset.h \
  io/dataset_manifest.cc io/dataset_manifest.h \
  io/dataset_report.cc io/dataset_report.h \
  io/dataset_verify.cc io/dataset_verify.h \
  io/descriptor.cc io/descriptor.h \
  io/embedder.h \
  io/ffmpeg.cc io/ffmpeg.h \
  io/ffmpeg_image.cc io/ffmpeg_image.h \
  io/fft_lanes.h \
  io/frame_to_rgb.cc io/frame_to_rgb.h \
  io/half.h \
  io/healing.cc io/healing.h \
  io/image.cc io/image.h \
  io/image_header.cc io/image_header.h \
  io/image_processor.cc io/image_processor.h \
  io/jpeg.cc io/jpeg.h \
  io/jpeg_huffman.cc io/jpeg_huffman.h \
  io/index_file.cc io/index_file.h \
  io/jinja_ast.h io/jinja_functions.h \
  io/jinja_filters.cc io/jinja_methods.cc io/jinja_operators.cc \
  io/jinja_lexer.cc io/jinja_lexer.h \
  io/jinja_parser.cc \
  io/jinja_template.cc io/jinja_template.h \
  io/jinja_value.cc io/jinja_value.h \
  io/io_pool.cc io/io_pool.h \
  io/json_node.h \
  io/known_bad.cc io/known_bad.h \
  io/latency_watch.cc io/latency_watch.h \
  io/ledger.cc io/ledger.h \
  io/ledger_summary.cc io/ledger_summary.h \
  io/media_clip.h \
  io/media_decoder.cc io/media_decoder.h \
  io/media_facts.cc io/media_facts.h \
  io/media_input.cc io/media_input.h \
  io/loader_records.cc io/loader_state.h io/loader_workers.cc \
  io/mel.cc io/mel.h \
  io/micro_batch.h \
  io/mixture.cc io/mixture.h \
  io/mov_header.cc io/mov_header.h \
  io/modality.cc io/modality.h \
  io/modality_index.cc io/modality_index.h \
  io/neighbour_builder.cc io/neighbour_builder.h \
  io/neighbour_file.cc io/neighbour_file.h \
  io/neighbour_search.cc io/neighbour_search.h \
  io/neighbours.cc io/neighbours.h \
  io/pack_target.cc io/pack_target.h \
  io/nvme_device.cc io/nvme_device.h \
  io/picture_decoder.cc io/picture_decoder.h \
  io/picture_folder.cc io/picture_folder.h \
  io/pixel_table.cc io/pixel_table.h \
  io/processor.cc io/processor.h \
  io/processor_clip.cc io/processor_clip.h \
  io/processor_decoder.cc io/processor_decoder.h \
  io/processor_files.cc io/processor_files.h \
  io/processor_fuyu.cc io/processor_fuyu.h \
  io/processor_internvl.cc io/processor_internvl.h \
  io/processor_llava_next.cc io/processor_llava_next.h \
  io/processor_qwen2_vl.cc io/processor_qwen2_vl.h \
  io/prefetch_depth.cc io/prefetch_depth.h \
  io/processor_whisper.cc io/processor_whisper.h \
  io/read_ahead.cc io/read_ahead.h \
  io/resize.cc io/resize.h \
  io/resize_kernels.cc io/resize_kernels.h io/resize_horizontal.h io/resize_vertical.h \
  io/run_lineage.cc io/run_lineage.h \
  io/sample_assembler.cc io/sample_assembler.h \
  io/sample_content.cc io/sample_content.h \
  io/sample_media.cc io/sample_media.h \
  io/sample_order.cc io/sample_order.h \
  io/sequence_alignment.cc io/sequence_alignment.h \
  io/shard_cache.cc io/shard_cache.h \
  io/shard_index.cc io/shard_index.h \
  io/shard_packer.cc io/shard_packer.h \
  io/shard_writer.cc io/shard_writer.h \
  io/step_plan.cc io/step_plan.h \
  io/source.cc io/source.h io/source_files.h io/uring_source.cc \
  io/source_policy.cc io/source_policy.h \
  io/storage.cc io/storage.h \
  io/storage_options.cc io/storage_options.h \
  io/tar_index.cc io/tar_index.h \
  io/tokenizer.cc io/tokenizer.h \
  io/tokenizer_added.cc io/tokenizer_added.h \
  io/tokenizer_bpe.cc io/tokenizer_bpe.h \
  io/tokenizer_bytes.cc io/tokenizer_bytes.h \
  io/tokenizer_decode.cc io/tokenizer_decode.h \
  io/tokenizer_json.cc io/tokenizer_json.h \
  io/tokenizer_sentencepiece.cc io/tokenizer_sentencepiece.h \
  io/tokenizer_pattern.cc io/tokenizer_pattern.h \
  io/tokenizer_steps.cc io/tokenizer_steps.h \
  io/tokenizer_vocab.cc io/tokenizer_vocab.h \
  io/transpose_bytes.cc io/transpose_bytes.h \
  io/utf8.cc io/utf8.h \
  io/video.cc io/video.h \
  io/video_device.cc io/video_device.h \
  io/video_rgb.cc io/video_rgb.h \
  io/video_sampling.cc io/video_sampling.h \
  io/video_table.cc io/video_table.h \
  io/watched_source.cc io/watched_source.h
libmso_io_la_CXXFLAGS = $(AM_CXXFLAGS) $(ARCHIVE_CFLAGS) $(JPEG_CFLAGS) $(FFMPEG_CFLAGS) $(PCRE2_CFLAGS) \
  $(UTF8PROC_CFLAGS) $(SPDLOG_CFLAGS) $(URING_CFLAGS)
if HAVE_SENTENCEPIECE
libmso_io_la_CXXFLAGS += $(SENTENCEPIECE_CFLAGS) -DMSO_HAVE_SENTENCEPIECE
endif
libmso_io_la_LIBADD = libmso_batch_memory.la $(ARCHIVE_LIBS) $(JPEG_LIBS) $(FFMPEG_LIBS) $(PCRE2_LIBS) $(UTF8PROC_LIBS) $(SENTENCEPIECE_LIBS) $(URING_LIBS)

EXTRA_DIST += \
  tests/fuzz/fuzz_tokenizer.cc tests/fuzz/corpus/tokenizer \
  tests/reference/chat_template_reference.py \
  tests/reference/sentencepiece_reference.py \
  tests/reference/sequence_alignment_reference.py \
  tests/reference/tokenizer_reference.py \
  tests/unit/io/fixtures/tokenizer/expected.json \
  tests/unit/io/fixtures/tokenizer/gpt2.json \
  tests/unit/io/fixtures/tokenizer/llama2.json \
  tests/unit/io/fixtures/tokenizer/llama3.json \
  tests/unit/io/fixtures/tokenizer/metaspace_first.json \
  tests/unit/io/fixtures/tokenizer/qwen2.json \
  tests/unit/io/fixtures/tokenizer/sentencepiece.json \
  tests/unit/io/fixtures/tokenizer/sentencepiece.model

# Reference tests compare it with the `tokenizers` package.
check_PROGRAMS += tokenize
tokenize_SOURCES = tests/reference/tokenize.cc
tokenize_CXXFLAGS = $(AM_CXXFLAGS)
tokenize_LDADD = libmso_io.la libmso_node.la libmso_base.la

# Reference tests compare it with transformers' apply_chat_template and with jinja2.
check_PROGRAMS += encode_chat
encode_chat_SOURCES = tests/reference/encode_chat.cc
encode_chat_CXXFLAGS = $(AM_CXXFLAGS)
encode_chat_LDADD = libmso_io.la libmso_node.la libmso_base.la

# Reference tests compare it with torch.nn.functional.
check_PROGRAMS += align_sequence
align_sequence_SOURCES = tests/reference/align_sequence.cc
align_sequence_CXXFLAGS = $(AM_CXXFLAGS)
align_sequence_LDADD = libmso_io.la libmso_node.la libmso_base.la

# Reference tests compare it with Pillow and with the image processors of transformers.
check_PROGRAMS += process_image
process_image_SOURCES = tests/reference/process_image.cc
process_image_CXXFLAGS = $(AM_CXXFLAGS)
process_image_LDADD = libmso_io.la libmso_node.la libmso_base.la

# Reference tests compare it with the processors of transformers.
check_PROGRAMS += process_media
process_media_SOURCES = tests/reference/process_media.cc
process_media_CXXFLAGS = $(AM_CXXFLAGS)
process_media_LDADD = libmso_io.la libmso_node.la libmso_base.la

# Reference tests compare it with FFmpeg's command line and with transformers.
check_PROGRAMS += decode_media
decode_media_SOURCES = tests/reference/decode_media.cc
decode_media_CXXFLAGS = $(AM_CXXFLAGS) $(FFMPEG_CFLAGS)
decode_media_LDADD = libmso_io.la libmso_node.la libmso_base.la

# Clips and seconds of sound a second, by hand: make media_bench; contrib/bench/media_bench.py compares it with peers.
EXTRA_PROGRAMS += media_bench
media_bench_SOURCES = contrib/bench/media_bench.cc
media_bench_CXXFLAGS = $(AM_CXXFLAGS) $(FFMPEG_CFLAGS)
media_bench_LDADD = libmso_io.la libmso_node.la libmso_base.la -lpthread

# Speed of decoding, by hand: make decode_bench; contrib/bench/decode_bench.py compares it with Pillow.
EXTRA_PROGRAMS += decode_bench
decode_bench_SOURCES = contrib/bench/decode_bench.cc
decode_bench_CXXFLAGS = $(AM_CXXFLAGS)
decode_bench_LDADD = libmso_io.la libmso_node.la libmso_base.la -lpthread

# A mount whose reads are as slow as a file says, for tests.
check_PROGRAMS += slow_storage
slow_storage_SOURCES = tests/storage/slow_storage.cc
slow_storage_CXXFLAGS = $(AM_CXXFLAGS)
slow_storage_LDADD = -lpthread

# Idle time beside a slow video, by hand: make idle_bench; contrib/bench/idle_time.py runs it.
EXTRA_PROGRAMS += idle_bench
idle_bench_SOURCES = contrib/bench/idle_bench.cc
idle_bench_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS)
idle_bench_LDADD = libmso_io.la libmso_node.la libmso_base.la -lpthread

# Spread of decode latency beside hogs, by hand: make decode_jitter; contrib/bench/decode_jitter.py runs it.
EXTRA_PROGRAMS += decode_jitter
decode_jitter_SOURCES = contrib/bench/decode_jitter.cc
decode_jitter_CXXFLAGS = $(AM_CXXFLAGS)
decode_jitter_LDADD = libmso_io.la libmso_node.la libmso_base.la -lpthread

# Start time and memory of a large index, by hand: make index_bench.
EXTRA_PROGRAMS += index_bench
index_bench_SOURCES = contrib/bench/index_bench.cc
index_bench_CXXFLAGS = $(AM_CXXFLAGS)
index_bench_LDADD = libmso_io.la libmso_node.la libmso_base.la -lpthread

if HAVE_GTEST
check_PROGRAMS += io_tests
TESTS += io_tests
io_tests_SOURCES = \
  tests/unit/io/audio_test.cc \
  tests/unit/io/batch_plan_test.cc \
  tests/unit/io/conversation_sample_test.cc \
  tests/unit/io/conversation_test.cc \
  tests/unit/io/data_loader_test.cc \
  tests/unit/io/dataset_manifest_test.cc \
  tests/unit/io/healing_test.cc \
  tests/unit/io/image_fixture.h \
  tests/unit/io/image_processor_test.cc \
  tests/unit/io/image_test.cc \
  tests/unit/io/jpeg_test.cc \
  tests/unit/io/jinja_test.cc \
  tests/unit/io/ledger_test.cc \
  tests/unit/io/processor_test.cc \
  tests/unit/io/processor_whisper_test.cc \
  tests/unit/io/media_facts_test.cc \
  tests/unit/io/media_fixture.h \
  tests/unit/io/mel_test.cc \
  tests/unit/io/prefetch_depth_test.cc \
  tests/unit/io/neighbours_test.cc \
  tests/unit/io/resize_test.cc \
  tests/unit/io/io_pool_test.cc \
  tests/unit/io/nvme_device_test.cc \
  tests/unit/io/run_lineage_test.cc \
  tests/unit/io/sample_assembler_test.cc \
  tests/unit/io/sequence_alignment_test.cc \
  tests/unit/io/shard_cache_test.cc \
  tests/unit/io/shard_index_test.cc \
  tests/unit/io/shard_fixture.h \
  tests/unit/io/shard_packer_test.cc \
  tests/unit/io/step_plan_test.cc \
  tests/unit/io/source_policy_test.cc \
  tests/unit/io/source_test.cc \
  tests/unit/io/storage_test.cc \
  tests/unit/io/tokenizer_json_test.cc \
  tests/unit/io/tokenizer_test.cc \
  tests/unit/io/video_device_test.cc \
  tests/unit/io/video_sampling_test.cc \
  tests/unit/io/video_test.cc
io_tests_CXXFLAGS = $(AM_CXXFLAGS) $(FFMPEG_CFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS)
io_tests_LDADD = libmso_io.la libmso_node.la libmso_base.la $(GTEST_LIBS)
endif
endif

EXTRA_DIST += \
  contrib/bench/decode_jitter.py contrib/bench/idle_time.py \
  contrib/bench/media_bench.py \
  tests/fuzz/fuzz_audio.cc tests/fuzz/corpus/audio \
  tests/fuzz/fuzz_video.cc tests/fuzz/corpus/video \
  tests/reference/audio_reference.py \
  tests/reference/media_facts_reference.py \
  tests/reference/video_reference.py \
  tests/unit/io/fixtures/media \
  tests/unit/io/fixtures/make_media_fixtures.py

EXTRA_DIST += doc/data.md tests/cli/data.bats tests/fuzz/fuzz_tar_index.cc \
  tests/fuzz/corpus/tar_index/empty tests/fuzz/corpus/tar_index/gnu tests/fuzz/corpus/tar_index/index \
  tests/fuzz/corpus/tar_index/pax tests/fuzz/corpus/tar_index/truncated tests/fuzz/corpus/tar_index/ustar
