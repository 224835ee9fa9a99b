#include "elastic/slurm_tools.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"

namespace mso {

namespace {

using std::chrono::steady_clock;

constexpr double kPatience_s = 15;

steady_clock::time_point in(double seconds) {
  return steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(seconds));
}

// `output`: where its standard output goes; -1: nowhere.
pid_t start(const std::vector<std::string>& command, int output) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw system_error("cannot start a process", command[0]);
  if (child > 0) return child;
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(output < 0 ? null : output, STDOUT_FILENO);
  dup2(null, STDERR_FILENO);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

// The wait status, or nothing while it lives.
bool ended(pid_t child, int* status) { return waitpid(child, status, WNOHANG) == child; }

// Exit code; -1 where it did not end in time (it is killed then).
int finish(pid_t child, steady_clock::time_point deadline) {
  int status = 0;
  while (!ended(child, &status)) {
    if (steady_clock::now() >= deadline) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::vector<std::string> expand_nodes(const std::string& node_list) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw system_error("cannot make a pipe", "scontrol");
  const FileDescriptor from(ends[0]);
  pid_t child;
  {
    const FileDescriptor to(ends[1]);
    child = start({"scontrol", "show", "hostnames", node_list}, to.get());
  }
  // Read until its end is closed, so that a long list does not fill the pipe.
  const auto deadline = in(kPatience_s);
  std::string text;
  char buffer[4096];
  for (;;) {
    pollfd readable{from.get(), POLLIN, 0};
    if (poll(&readable, 1, 100) > 0) {
      const ssize_t n = read(from.get(), buffer, sizeof buffer);
      if (n == 0) break;
      if (n > 0) text.append(buffer, n);
    }
    if (steady_clock::now() >= deadline) break;
  }
  const int code = finish(child, deadline);
  if (code != 0)
    throw Error("Slurm does not say which nodes the job has", "scontrol show hostnames " + node_list + ": " +
                    (code < 0 ? "no answer" : "exit code " + std::to_string(code)),
                "is scontrol in PATH? --local leaves Slurm out of it", ExitCode::kBadUsage);
  std::vector<std::string> nodes;
  std::istringstream lines(text);
  for (std::string node; lines >> node;) nodes.push_back(node);
  return nodes;
}

std::set<std::string> lost_nodes(const std::vector<std::string>& nodes, double patience_s) {
  std::map<pid_t, std::string> tries;
  for (const std::string& node : nodes)
    tries[start({"srun", "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", "--nodelist=" + node, "--quiet", "true"}, -1)] =
        node;
  const auto deadline = in(patience_s);
  std::set<std::string> lost;
  for (const auto& [child, node] : tries)
    if (finish(child, deadline) != 0) lost.insert(node);
  return lost;
}

void kill_step(const std::string& job_id, const std::string& step_id) {
  finish(start({"scancel", "--signal=KILL", job_id + "." + step_id}, -1), in(kPatience_s));
}

}  // namespace mso
