#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/file.h"

namespace mso {

namespace {

using Clock = std::chrono::steady_clock;

// A killed process that does not go (it waits for a disk or a server that is away) is left behind after this.
constexpr double kReapS = 1;
// Between two looks at a program that has closed its output and not ended yet.
constexpr int kLookMs = 2;

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

int left_ms(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(std::min<int64_t>(left, 1 << 30)) + 1;
}

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

// A program that runs.
struct Child {
  pid_t pid = -1;  // -1: not there any more
  FileDescriptor output, errors;
  Outcome outcome;

  bool speaks() const { return output.valid() || errors.valid(); }

  void start(const std::vector<std::string>& argv, const std::vector<std::string>* environment) {
    Pipe out, err;
    if (!out.open() || !err.open()) {
      outcome.not_started = errno;
      return;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
    posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
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
    std::vector<char*> arguments = pointers(argv), variables;
    if (environment) variables = pointers(*environment);
    outcome.not_started = ::posix_spawnp(&pid, argv.at(0).c_str(), &actions, &attributes, arguments.data(),
                                         environment ? variables.data() : environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (outcome.not_started) {
      pid = -1;
      return;
    }
    output = std::move(out.read);
    errors = std::move(err.read);
  }

  // Looks whether it has ended.
  void reap() {
    int status = 0;
    pid_t ended;
    while ((ended = ::waitpid(pid, &status, WNOHANG)) < 0 && errno == EINTR) {
    }
    if (ended == 0) return;
    // Below 0: somebody else reaped it (a daemon that ignores SIGCHLD), the code is not known.
    if (ended == pid) outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    pid = -1;
  }

  void kill() {
    outcome.timed_out = true;
    ::kill(-pid, SIGKILL);
    ::kill(pid, SIGKILL);  // it may have left its group
    output.reset();
    errors.reset();
  }
};

// Until the pipes of all are closed and all have ended, or the deadline is over.
void await(std::vector<Child>& children, Clock::time_point end, size_t limit) {
  for (;;) {
    std::vector<pollfd> wanted;
    std::vector<std::pair<FileDescriptor*, std::string*>> sinks;
    bool ending = false;  // one has closed its output and is about to end
    for (Child& child : children) {
      if (child.output.valid()) sinks.emplace_back(&child.output, &child.outcome.output);
      if (child.errors.valid()) sinks.emplace_back(&child.errors, &child.outcome.errors);
      if (child.pid >= 0 && !child.speaks()) child.reap();
      ending = ending || (child.pid >= 0 && !child.speaks());
    }
    for (const auto& sink : sinks) wanted.push_back({sink.first->get(), POLLIN, 0});
    if (wanted.empty() && !ending) return;
    const int left = left_ms(end);
    if (left == 0) return;
    if (::poll(wanted.data(), wanted.size(), ending ? std::min(left, kLookMs) : left) <= 0) continue;
    for (size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i].revents && !drain(wanted[i].fd, *sinks[i].second, limit)) sinks[i].first->reset();
  }
}

}  // namespace

std::vector<Outcome> run_programs(const std::vector<std::vector<std::string>>& commands, double deadline_s,
                                  size_t limit, const std::vector<std::string>* environment) {
  const Clock::time_point end = after(deadline_s);
  std::vector<Child> children(commands.size());
  for (size_t i = 0; i < commands.size(); ++i) children[i].start(commands[i], environment);
  await(children, end, limit);
  for (Child& child : children)
    if (child.pid >= 0) child.kill();
  await(children, after(kReapS), limit);
  std::vector<Outcome> outcomes;
  for (Child& child : children) outcomes.push_back(std::move(child.outcome));
  return outcomes;
}

Outcome run_program(const std::vector<std::string>& argv, double deadline_s, size_t limit,
                    const std::vector<std::string>* environment) {
  return std::move(run_programs({argv}, deadline_s, limit, environment).front());
}

}  // namespace mso
