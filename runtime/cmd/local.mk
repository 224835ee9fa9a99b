# cmd: the program mso, one file per subcommand.
bin_PROGRAMS += mso
mso_SOURCES = runtime/cmd/main.cc
mso_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS)
mso_LDADD = libmso_base.la
