# Scripts of a source folder.
EXTRA_DIST += contrib/build contrib/distcheck contrib/install-dependencies contrib/quickstart contrib/run-tests
