#include "comm/world.h"

#include "config.h"
#ifdef MSO_HAVE_MPI
#include <mpi.h>

#include "comm/mpi_communicator.h"
#endif

#include <sys/uio.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "comm/launcher.h"

namespace mso {

namespace {

constexpr double kStartTimeoutS = 120;
constexpr std::chrono::seconds kFinaliseTimeout{60};

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

#ifdef MSO_HAVE_MPI
// Ends the process where something that cannot be interrupted takes too long.
class Watchdog {
 public:
  Watchdog(std::chrono::seconds patience, std::string what)
      : thread_([this, patience, what = std::move(what)] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, patience, [this] { return finished_; })) return;
          log_error("{} took more than {} s: a peer is gone; giving up", what, patience.count());
          std::fflush(nullptr);
          _exit(static_cast<int>(ExitCode::kPeerLost));
        }) {}
  ~Watchdog() {
    {
      std::lock_guard lock(mutex_);
      finished_ = true;
    }
    over_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool finished_ = false;
  std::thread thread_;
};

// Open MPI copies large messages between processes of a host with process_vm_readv; where a container forbids
// that, every message would print an error first. Seen before MPI starts, as it reads the variable then.
void avoid_forbidden_single_copy() {
  char from = 1, to = 0;
  iovec local{&to, 1}, remote{&from, 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1) return;
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  setenv("OMPI_MCA_btl_sm_single_copy_mechanism", "none", 0);
}

// The one place with MPI_COMM_WORLD.
std::unique_ptr<Communicator> start_mpi(const LaunchInfo& launch) {
  avoid_forbidden_single_copy();
  int given = MPI_THREAD_SINGLE;
  {
    Watchdog watchdog(std::chrono::seconds(static_cast<int>(kStartTimeoutS)), "starting MPI");
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &given) != MPI_SUCCESS) {
      throw Error("MPI did not start", "MPI_Init_thread, launched by " + launch.launcher, "",
                  ExitCode::kPeerLost);
    }
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (given < MPI_THREAD_MULTIPLE) {
    throw Error("this MPI does not allow calls from several threads at once", "MPI_Init_thread",
                "use an MPI built with MPI_THREAD_MULTIPLE, such as Debian's Open MPI", ExitCode::kBadUsage);
  }
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1 && launch.ranks > 1) {
    throw Error("each of " + std::to_string(launch.ranks) + " processes takes itself for the whole job",
                "started by " + launch.launcher,
                "the launcher belongs to another MPI: use its own mpirun, or srun --mpi=pmix",
                ExitCode::kBadUsage);
  }
  return make_mpi_communicator(MPI_COMM_WORLD, "world");
}
#endif

}  // namespace

World::World() {
  const LaunchInfo launch = detect_launcher([](const char* name) { return std::getenv(name); });
#ifdef MSO_HAVE_MPI
  if (launch.use_mpi) {
    communicator_ = start_mpi(launch);
    initialised_ = true;
  }
#else
  if (launch.ranks != 1) {
    throw Error("this mso is built without MPI and can only be one rank",
                "started by " + launch.launcher + " as one of several ranks",
                "start it without a launcher, or build it with MPI (libopenmpi-dev)", ExitCode::kBadUsage);
  }
#endif
  if (!communicator_) communicator_ = make_single_communicator("world");

  const char* given = std::getenv("MSO_NODE");
  const std::string host = host_name();
  nodes_ = all_gather_text(*communicator_, given != nullptr && *given != '\0' ? given : host, kStartTimeoutS);
  const auto hosts = all_gather_text(*communicator_, host, kStartTimeoutS);
  local_size_ = 0;
  for (int r = 0; r < size(); ++r) {
    local_size_ += nodes_[r] == node();
    local_rank_ += r < rank() && nodes_[r] == node();
    host_rank_ += r < rank() && hosts[r] == host;
  }
}

World::~World() {
#ifdef MSO_HAVE_MPI
  if (!initialised_) return;
  if (std::uncaught_exceptions() > 0) {
    // The others may be waiting for this rank; finalising would wait for them. Whoever catches the exception
    // should end the process with its code; the launcher then ends the others.
    static auto* kept = new std::unique_ptr<Communicator>;
    *kept = std::move(communicator_);
    return;
  }
  Watchdog watchdog(kFinaliseTimeout, "MPI_Finalize");
  communicator_.reset();
  MPI_Finalize();
#endif
}

void World::abandon(int exit_code) {
  flush_log();
  std::fflush(nullptr);
  _exit(exit_code);
}

}  // namespace mso
