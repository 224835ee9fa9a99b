// Ranks on this machine, under mpirun: mso-rank tells each one's end through a FIFO.
#pragma once

#include "elastic/attempt.h"

namespace mso {

enum class AttemptKind { kFirst, kRestart, kStandby };

class LocalAttempt final : public Attempt {
 public:
  // Starts the launcher. A standby's ranks load what they need and wait for go(); what they report is kept until then.
  LocalAttempt(const SupervisorOptions& options, SignalDescriptor& signals, Launchers& launchers, AttemptKind kind);
  // Ends whatever is left.
  ~LocalAttempt() override;
  void go() override;

 private:
  void rank_started(Rank& rank, const std::string& step) override;
  void read_reports() override;
  void add_watched(std::vector<pollfd>& watched) const override;
  void look_for_lost_ranks() override;
  void ask_to_leave() override;
  void end_processes() override;
  const char* launcher_name() const override;
  void spawn(AttemptKind kind);
  std::vector<std::string> command_line() const;

  std::filesystem::path folder_, memory_folder_;  // of this attempt: FIFO and launcher's files; shared segments
  FileDescriptor reports_, go_;
  std::string partial_line_;
};

}  // namespace mso
