// SIGUSR1 and SIGTERM ask for a snapshot and an orderly end; the trainer looks at a flag at each step boundary.
#pragma once

namespace mso {

// Installs the handlers (async-signal-safe: they set a flag). A second SIGTERM or SIGINT ends the process at once.
void install_stop_signals();
// The signal that asked, or 0.
int stop_signal_received();

}  // namespace mso
