# cmd: the program mso, one file per subcommand. A command whose part is built adds its source, its flags and the
# convenience libraries here, and -DMSO_WITH_..._COMMAND (commands.cc lists it then).
bin_PROGRAMS += mso
mso_SOURCES = runtime/cmd/main.cc runtime/cmd/command.h runtime/cmd/commands.cc \
  runtime/cmd/config.cc runtime/cmd/plan.cc runtime/cmd/run.cc
mso_CPPFLAGS = $(AM_CPPFLAGS) -DMSO_PKGLIBEXECDIR='"$(pkglibexecdir)"'
mso_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS)
mso_LDADD =

# --- train (trainer): -DMSO_WITH_TRAIN_COMMAND, if BUILD_TRAIN
if BUILD_IO
mso_SOURCES += runtime/cmd/data.cc
mso_CPPFLAGS += -DMSO_WITH_DATA_COMMAND
mso_LDADD += libmso_io.la
endif
# --- ckpt:            -DMSO_WITH_CKPT_COMMAND, if BUILD_CKPT
# --- report
mso_SOURCES += runtime/cmd/report.cc
mso_CPPFLAGS += -DMSO_WITH_REPORT_COMMAND
mso_LDADD += libmso_record.la

mso_LDADD += libmso_elastic.la

# What everything above stands on comes last.
mso_LDADD += libmso_plan.la libmso_node.la libmso_base.la
