// mso-rank PROGRAM ARGUMENT...: stands between the launcher and one rank of `mso run`. Tells the supervisor
// at once how the rank ended (its parent, mpirun, would do so a second or two later), passes signals on, and
// sees to it that the rank does not outlive the launcher. Small and without libraries, as it starts anew with
// every attempt.
//
// Environment: MSO_RANK_STATUS, a FIFO; lines "start RANK OWN_PID RANK_PID" and "end RANK OWN_PID
// WAIT_STATUS". Under srun (SLURM_PROCID) the supervisor may be on another node: there it is a file of this rank's own,
// MSO_RANK_STATUS-RANK on shared storage, and the lines end with the step's number.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

int rank_number() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  return 0;
}

void tell(int fd, const char* what, int rank, long value) {
  if (fd < 0) return;
  char line[128];  // below PIPE_BUF: lines of several ranks never mix
  const char* step = std::getenv("SLURM_STEP_ID");
  const int n = std::snprintf(line, sizeof line, "%s %d %d %ld %.20s\n", what, rank, static_cast<int>(getpid()), value,
                              step == nullptr ? "" : step);
  while (write(fd, line, n) < 0 && errno == EINTR) {
  }
}

// -1: not there. The rank runs without, where its end reaches the supervisor in another way (srun's).
int open_status_file(const char* path, int rank) {
  char name[4096];
  if (std::snprintf(name, sizeof name, "%s-%04d", path, rank) >= static_cast<int>(sizeof name)) return -1;
  return open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

}  // namespace

int main(int argc, char** argv) {
  const char* path = std::getenv("MSO_RANK_STATUS");
  if (argc < 2 || path == nullptr) {
    std::fprintf(stderr, "mso-rank is started by mso run\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int rank = rank_number();
  const bool by_srun = std::getenv("SLURM_PROCID") != nullptr && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr;
  // The launcher may have died before the line above; the supervisor has taken the FIFO away then.
  const int status_fd = by_srun ? open_status_file(path, rank) : open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (status_fd < 0 && !by_srun) {
    std::fprintf(stderr, "mso-rank: %s: %s\n", path, std::strerror(errno));
    return 1;
  }

  sigset_t waited, before;
  sigemptyset(&waited);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&waited, signal);
  sigprocmask(SIG_BLOCK, &waited, &before);

  const pid_t child = fork();
  if (child < 0) {
    std::perror("mso-rank: fork");
    return 1;
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == 1) _exit(1);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    unsetenv("MSO_RANK_STATUS");
    execvp(argv[1], argv + 1);
    std::fprintf(stderr, "mso-rank: %s: %s\n", argv[1], std::strerror(errno));
    _exit(2);
  }
  tell(status_fd, "start", rank, child);

  for (;;) {
    const int signal = sigwaitinfo(&waited, nullptr);
    if (signal < 0) continue;
    if (signal != SIGCHLD) {
      kill(child, signal);
      continue;
    }
    int status = 0;
    if (waitpid(child, &status, WNOHANG) != child) continue;
    tell(status_fd, "end", rank, status);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    // End the same way, so that the launcher's message is right; without a core file of this process.
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    ::signal(WTERMSIG(status), SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    kill(getpid(), WTERMSIG(status));
    return 128 + WTERMSIG(status);
  }
}
