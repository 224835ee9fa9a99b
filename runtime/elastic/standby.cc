#include "elastic/standby.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace mso {

bool stand_by() {
  const char* path = std::getenv("MSO_STANDBY");
  if (path == nullptr) return false;
  int fd = -1;
  // Opens when the supervisor opens it for writing. It takes the FIFO away when it has no more use for these ranks.
  while ((fd = ::open(path, O_RDONLY | O_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (fd < 0) _exit(1);
  ::close(fd);
  unsetenv("MSO_STANDBY");
  return true;
}

}  // namespace mso
