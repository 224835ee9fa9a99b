// The rank's side of standing by: see SupervisorOptions::standby.
#pragma once

namespace mso {

// In a process that was started to stand by (MSO_STANDBY names a FIFO): returns when the supervisor says go, or ends the
// process when the supervisor is gone. Uses no processor time. Elsewhere returns at once. True: it stood by.
bool stand_by();

}  // namespace mso
