#include "spank/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/file.h"

namespace mso {

namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  FileDescriptor read, write;
  bool open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    read = FileDescriptor(ends[0]);
    write = FileDescriptor(ends[1]);
    return true;
  }
};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

// One read into `text`; what is over the limit is read and dropped. False at the end.
bool drain(int fd, std::string& text, size_t limit) {
  char buffer[4096];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n > 0 && text.size() < limit)
    text.append(buffer, std::min(static_cast<size_t>(n), limit - text.size()));
  return n > 0;
}

int left_ms(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left) + 1;
}

}  // namespace

Outcome run_program(const std::vector<std::string>& argv, double deadline_s, size_t limit,
                    const std::vector<std::string>* environment) {
  Outcome outcome;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(deadline_s));
  Pipe output, errors;
  if (!output.open() || !errors.open()) {
    outcome.not_started = errno;
    return outcome;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output.write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, errors.write.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Slurm's daemons block and ignore signals; the program starts with an ordinary set, in a group of its own
  // so that what it starts is killed with it.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  std::vector<char*> arguments = pointers(argv), variables;
  if (environment) variables = pointers(*environment);
  outcome.not_started = ::posix_spawn(&pid, argv.at(0).c_str(), &actions, &attributes, arguments.data(),
                                      environment ? variables.data() : environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (outcome.not_started) return outcome;
  output.write.reset();
  errors.write.reset();

  while (output.read.valid() || errors.read.valid()) {
    pollfd wanted[2] = {{output.read.get(), POLLIN, 0}, {errors.read.get(), POLLIN, 0}};
    const int ready = ::poll(wanted, 2, left_ms(end));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      outcome.timed_out = true;
      break;
    }
    if (wanted[0].revents && !drain(output.read.get(), outcome.output, limit)) output.read.reset();
    if (wanted[1].revents && !drain(errors.read.get(), outcome.errors, limit)) errors.read.reset();
  }
  // It has closed its output: it ends now, or is killed at the deadline.
  int status = 0;
  for (;;) {
    if (outcome.timed_out) ::kill(-pid, SIGKILL);
    const pid_t ended = ::waitpid(pid, &status, outcome.timed_out ? 0 : WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno != EINTR) {  // somebody else reaped it (a daemon that ignores SIGCHLD)
      outcome.exit_code = -1;
      return outcome;
    }
    if (ended == 0) {
      if (left_ms(end) == 0) outcome.timed_out = true;
      ::poll(nullptr, 0, 2);
    }
  }
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace mso
