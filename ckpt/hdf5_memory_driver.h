// An HDF5 file driver for an open descriptor without a name (memfd): a snapshot's metadata is laid out in a
// sparse memory file, with holes where the bulk will be. HDF5's own drivers need a path or touch all of the
// memory.
#pragma once

#include <hdf5.h>

namespace mso {

// Makes `access` (a file access property list) open descriptor `fd`, which stays the caller's. <0 on failure.
herr_t set_descriptor_driver(hid_t access, int fd);

}  // namespace mso
