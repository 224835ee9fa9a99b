#include "exec/stop_signal.h"

#include <signal.h>

#include <csignal>
#include <initializer_list>

namespace mso {

namespace {
volatile std::sig_atomic_t received = 0;

void on_signal(int signal_number) {
  if (received != 0 && signal_number != SIGUSR1) {
    ::signal(signal_number, SIG_DFL);
    ::raise(signal_number);
  }
  received = signal_number;
}
}  // namespace

void install_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int signal_number : {SIGUSR1, SIGTERM, SIGINT}) ::sigaction(signal_number, &action, nullptr);
}

int stop_signal_received() { return received; }

}  // namespace mso
