// A read-only mount of a folder whose reads take as long as a file says, for tests of slow and hung storage.
//
// usage: slow_storage FOLDER MOUNT_POINT CONTROL
//   CONTROL holds milliseconds ("5", "800"), "hang" or "fail"; it is looked at with every read of a file and may be
//   rewritten (renamed over) at any time. What hangs goes on when it is rewritten.
// Runs in the foreground and prints "ready"; SIGTERM unmounts. Needs root and /dev/fuse. Speaks the kernel's protocol
// (linux/fuse.h) itself, so it needs no library. Files are read with direct I/O: the page cache does not answer for the storage,
// except for indexes (.idx), which are mapped.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

std::string folder, mount_point, control;
int device = -1;

std::mutex mutex;
std::map<uint64_t, std::string> paths = {{FUSE_ROOT_ID, ""}};  // node → path below the folder
std::map<std::string, uint64_t> nodes = {{"", FUSE_ROOT_ID}};
std::set<uint64_t> interrupted;  // requests

std::string path_of(uint64_t node) {
  std::lock_guard lock(mutex);
  return folder + paths[node];
}

void reply(uint64_t unique, int error, const void* data = nullptr, size_t size = 0) {
  fuse_out_header head{static_cast<uint32_t>(sizeof(fuse_out_header) + (error ? 0 : size)), -error, unique};
  iovec parts[2] = {{&head, sizeof head}, {const_cast<void*>(data), error ? 0 : size}};
  (void)!::writev(device, parts, error || size == 0 ? 1 : 2);
}

void fill(fuse_attr& attr, const struct stat& info, uint64_t node) {
  attr.ino = node;
  attr.size = static_cast<uint64_t>(info.st_size);
  attr.blocks = static_cast<uint64_t>(info.st_blocks);
  attr.mtime = static_cast<uint64_t>(info.st_mtim.tv_sec);
  attr.mtimensec = static_cast<uint32_t>(info.st_mtim.tv_nsec);
  attr.mode = info.st_mode;
  attr.nlink = static_cast<uint32_t>(info.st_nlink);
  attr.blksize = 4096;
}

// What CONTROL says: milliseconds; -1: hang; -2: fail.
int order() {
  char text[32] = {};
  const int fd = ::open(control.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  (void)!::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (std::strncmp(text, "hang", 4) == 0) return -1;
  return std::strncmp(text, "fail", 4) == 0 ? -2 : std::atoi(text);
}

void read_file(uint64_t unique, uint64_t node, fuse_read_in in) {
  const auto begin = std::chrono::steady_clock::now();
  int now = order();
  while (now == -1) {  // until it is told otherwise, or the reader is killed
    {
      std::lock_guard lock(mutex);
      if (interrupted.erase(unique)) return reply(unique, EINTR);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    now = order();
  }
  {
    std::lock_guard lock(mutex);
    interrupted.erase(unique);
  }
  if (now == -2) return reply(unique, EIO);
  std::vector<char> bytes(in.size);
  const int fd = ::open(path_of(node).c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd < 0 ? -1 : ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(in.offset));
  const int error = n < 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  std::this_thread::sleep_until(begin + std::chrono::milliseconds(now));
  reply(unique, error, bytes.data(), n < 0 ? 0 : static_cast<size_t>(n));
}

void read_folder(uint64_t unique, uint64_t node, const fuse_read_in& in) {
  DIR* dir = ::opendir(path_of(node).c_str());
  if (!dir) return reply(unique, errno);
  std::vector<char> out;
  uint64_t number = 0;
  for (dirent* entry; (entry = ::readdir(dir)); ) {
    if (number++ < in.offset) continue;
    const size_t length = std::strlen(entry->d_name), size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
    if (out.size() + size > in.size) break;
    fuse_dirent head{1, number, static_cast<uint32_t>(length), entry->d_type};
    const size_t at = out.size();
    out.resize(at + size);
    std::memcpy(out.data() + at, &head, FUSE_NAME_OFFSET);
    std::memcpy(out.data() + at + FUSE_NAME_OFFSET, entry->d_name, length);
  }
  ::closedir(dir);
  reply(unique, 0, out.data(), out.size());
}

void lookup(uint64_t unique, uint64_t parent, const char* name) {
  struct stat info;
  std::string path;
  {
    std::lock_guard lock(mutex);
    path = paths[parent] + "/" + name;
  }
  if (::stat((folder + path).c_str(), &info) != 0) return reply(unique, errno);
  fuse_entry_out out{};
  {
    std::lock_guard lock(mutex);
    const auto [at, fresh] = nodes.try_emplace(path, nodes.size() + FUSE_ROOT_ID);
    if (fresh) paths[at->second] = path;
    out.nodeid = at->second;
  }
  out.attr_valid = out.entry_valid = 1;
  fill(out.attr, info, out.nodeid);
  reply(unique, 0, &out, sizeof out);
}

void handle(const char* request) {
  fuse_in_header head;
  std::memcpy(&head, request, sizeof head);
  const char* body = request + sizeof head;
  switch (head.opcode) {
    case FUSE_INIT: {
      fuse_init_in in;
      std::memcpy(&in, body, sizeof in);
      fuse_init_out out{};
      out.major = FUSE_KERNEL_VERSION;
      out.minor = std::min<uint32_t>(in.minor, 31);
      out.max_readahead = in.max_readahead;
      out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS);
      out.max_background = 256;
      out.congestion_threshold = 192;
      out.max_write = 131072;
      return reply(head.unique, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP: return lookup(head.unique, head.nodeid, body);
    case FUSE_GETATTR: {
      struct stat info;
      if (::stat(path_of(head.nodeid).c_str(), &info) != 0) return reply(head.unique, errno);
      fuse_attr_out out{};
      out.attr_valid = 1;
      fill(out.attr, info, head.nodeid);
      return reply(head.unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
      fuse_open_out out{};
      if (head.opcode == FUSE_OPEN) out.open_flags = path_of(head.nodeid).ends_with(".idx") ? FOPEN_KEEP_CACHE : FOPEN_DIRECT_IO;
      return reply(head.unique, 0, &out, sizeof out);
    }
    case FUSE_READ: {
      fuse_read_in in;
      std::memcpy(&in, body, sizeof in);
      std::thread(read_file, head.unique, head.nodeid, in).detach();
      return;
    }
    case FUSE_READDIR: {
      fuse_read_in in;
      std::memcpy(&in, body, sizeof in);
      return read_folder(head.unique, head.nodeid, in);
    }
    case FUSE_INTERRUPT: {
      fuse_interrupt_in in;
      std::memcpy(&in, body, sizeof in);
      std::lock_guard lock(mutex);
      interrupted.insert(in.unique);
      return;
    }
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET: return;
    case FUSE_STATFS: {
      fuse_statfs_out out{};
      out.st.bsize = out.st.frsize = 4096;
      out.st.namelen = 255;
      return reply(head.unique, 0, &out, sizeof out);
    }
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH: return reply(head.unique, 0);
    default: return reply(head.unique, ENOSYS);
  }
}

void leave(int) {
  ::umount2(mount_point.c_str(), MNT_DETACH);
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: slow_storage FOLDER MOUNT_POINT CONTROL\n");
    return 2;
  }
  folder = argv[1], mount_point = argv[2], control = argv[3];
  device = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) return std::perror("/dev/fuse"), 77;
  const std::string options = "fd=" + std::to_string(device) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
  if (::mount("slow_storage", mount_point.c_str(), "fuse.slow_storage", MS_NODEV | MS_NOSUID | MS_RDONLY, options.c_str()) != 0)
    return std::perror("mount"), 77;
  std::signal(SIGTERM, leave);
  std::signal(SIGINT, leave);
  std::puts("ready");
  std::fflush(stdout);
  std::vector<char> request(1 << 18);
  for (;;) {
    const ssize_t n = ::read(device, request.data(), request.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;
    if (n < static_cast<ssize_t>(sizeof(fuse_in_header))) return 0;  // unmounted
    handle(request.data());
  }
}
