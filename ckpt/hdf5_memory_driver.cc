#include "ckpt/hdf5_memory_driver.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace mso {

namespace {

struct DescriptorFile {
  H5FD_t base;  // HDF5's part comes first
  int fd;
  haddr_t allocated;
};
DescriptorFile* self(H5FD_t* file) {
  return reinterpret_cast<DescriptorFile*>(file);
}
const DescriptorFile* self(const H5FD_t* file) {
  return reinterpret_cast<const DescriptorFile*>(file);
}

H5FD_t* open_descriptor(const char*, unsigned, hid_t access, haddr_t) {
  const void* info = H5Pget_driver_info(access);
  if (!info) return nullptr;
  auto* file = new (std::nothrow) DescriptorFile();
  if (!file) return nullptr;
  std::memcpy(&file->fd, info, sizeof file->fd);
  return &file->base;
}

herr_t close_descriptor(H5FD_t* file) {
  delete self(file);
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* features) {
  if (features)
    *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_ACCUMULATE_METADATA;
  return 0;
}

haddr_t get_allocated(const H5FD_t* file, H5FD_mem_t) {
  return self(file)->allocated;
}
herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  self(file)->allocated = end;
  return 0;
}
haddr_t get_end(const H5FD_t* file, H5FD_mem_t) {
  struct stat info;
  return ::fstat(self(file)->fd, &info) == 0 ? static_cast<haddr_t>(info.st_size) : HADDR_UNDEF;
}

herr_t read_at(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t size, void* data) {
  char* to = static_cast<char*>(data);
  while (size > 0) {
    ssize_t n = ::pread(self(file)->fd, to, size, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) {  // past the end: zeros, as HDF5 expects
      std::memset(to, 0, size);
      return 0;
    }
    to += n, at += n, size -= n;
  }
  return 0;
}

herr_t write_at(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t size, const void* data) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t n = ::pwrite(self(file)->fd, from, size, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    from += n, at += n, size -= n;
  }
  return 0;
}

herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
  return ::ftruncate(self(file)->fd, static_cast<off_t>(self(file)->allocated)) == 0 ? 0 : -1;
}

hid_t driver() {
  static const hid_t id = [] {
    static H5FD_class_t driver_class{};
#ifdef H5FD_CLASS_VERSION  // from HDF5 1.13 on
    driver_class.version = H5FD_CLASS_VERSION;
    driver_class.value = static_cast<H5FD_class_value_t>(512 + 77);
#endif
    driver_class.name = "mso-descriptor";
    driver_class.maxaddr = (haddr_t{1} << 62);
    driver_class.fc_degree = H5F_CLOSE_WEAK;
    driver_class.fapl_size = sizeof(int);
    driver_class.open = open_descriptor;
    driver_class.close = close_descriptor;
    driver_class.query = query;
    driver_class.get_eoa = get_allocated;
    driver_class.set_eoa = set_allocated;
    driver_class.get_eof = get_end;
    driver_class.read = read_at;
    driver_class.write = write_at;
    driver_class.truncate = truncate;
    const H5FD_mem_t kinds[] = H5FD_FLMAP_DICHOTOMY;
    std::memcpy(driver_class.fl_map, kinds, sizeof kinds);
    return H5FDregister(&driver_class);
  }();
  return id;
}

}  // namespace

herr_t set_descriptor_driver(hid_t access, int fd) {
  hid_t id = driver();
  return id < 0 ? -1 : H5Pset_driver(access, id, &fd);
}

}  // namespace mso
