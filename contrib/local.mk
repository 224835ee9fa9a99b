# contrib: scripts that are run from the source folder. Those that belong to a part are listed beside it.
EXTRA_DIST += contrib/bench/README.md contrib/bench/run contrib/bench/common.py contrib/bench/llava_14m.yaml \
  contrib/bench/make_data.py contrib/bench/training.py contrib/bench/peer_training.py contrib/bench/data.py \
  contrib/bench/peer_data.py contrib/bench/snapshots.py contrib/bench/peer_checkpoint.py contrib/bench/restart.py \
  contrib/bench/peer_restart.py contrib/bench/make_media.py contrib/bench/peer_media.py contrib/bench/pipelines.py contrib/bench/table.py contrib/bench/spank_launch.py contrib/bench/slow_storage.py \
  contrib/bench/slow_nvme.py contrib/bench/slow_nvme_guest.sh
EXTRA_DIST += contrib/slurm/prolog.d/mso contrib/slurm/epilog.d/mso
EXTRA_DIST += contrib/packaging/build-deb contrib/packaging/check-deb contrib/packaging/debian/changelog \
  contrib/packaging/debian/control contrib/packaging/debian/copyright contrib/packaging/debian/rules \
  contrib/packaging/debian/source/format
EXTRA_DIST += contrib/build contrib/distcheck contrib/install-dependencies contrib/quickstart contrib/run-tests
