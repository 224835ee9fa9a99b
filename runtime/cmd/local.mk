# cmd: the program mso, one file per subcommand. A command whose part is built adds its source, its flags and the
# convenience libraries here, and -DMSO_WITH_..._COMMAND (commands.cc lists it then).
bin_PROGRAMS += mso
mso_SOURCES = runtime/cmd/main.cc runtime/cmd/command.h runtime/cmd/ckpt_export.h runtime/cmd/commands.cc \
  runtime/cmd/check.cc runtime/cmd/checked_model.cc runtime/cmd/checked_model.h runtime/cmd/config.cc runtime/cmd/plan.cc runtime/cmd/run.cc
mso_CPPFLAGS = $(AM_CPPFLAGS) -DMSO_PKGLIBEXECDIR='"$(pkglibexecdir)"'
mso_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS)
mso_LDADD =

if BUILD_TRAIN
mso_SOURCES += runtime/cmd/train.cc
mso_CPPFLAGS += -DMSO_WITH_TRAIN_COMMAND
mso_CXXFLAGS += $(TORCH_CFLAGS)
mso_LDADD += libmso_exec.la libmso_model.la libmso_memory.la libmso_optimizer.la
endif
if BUILD_IO
if BUILD_CKPT
mso_SOURCES += runtime/cmd/ckpt_export.cc
mso_CPPFLAGS += -DMSO_WITH_EXPORT_COMMAND
endif
mso_LDADD += libmso_model_setup.la
mso_SOURCES += runtime/cmd/data.cc runtime/cmd/data_bench.cc runtime/cmd/data_index.cc runtime/cmd/data_paths.cc runtime/cmd/data_report.cc runtime/cmd/data_stat.cc \
  runtime/cmd/data_tools.h runtime/cmd/data_verify.cc \
  runtime/cmd/progress_line.cc runtime/cmd/progress_line.h
if BUILD_TRAIN
mso_SOURCES += runtime/cmd/clip_adapter.cc runtime/cmd/clip_adapter.h
endif
mso_CPPFLAGS += -DMSO_WITH_DATA_COMMAND
mso_LDADD += libmso_io.la
endif
if BUILD_CKPT
mso_SOURCES += runtime/cmd/ckpt.cc
mso_CPPFLAGS += -DMSO_WITH_CKPT_COMMAND
mso_LDADD += libmso_ckpt.la
endif
# --- report
mso_SOURCES += runtime/cmd/report.cc
mso_CPPFLAGS += -DMSO_WITH_REPORT_COMMAND
mso_LDADD += libmso_record.la

# What everything above stands on comes last.
mso_LDADD += libmso_elastic.la libmso_plan.la libmso_model_files.la libmso_comm.la libmso_node_read.la libmso_node.la libmso_base.la
