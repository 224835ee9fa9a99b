#include "ckpt/hdf5_file.h"

#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "ckpt/hdf5_memory_driver.h"

namespace mso {

namespace {

constexpr int kMaxDimensions = 8;
constexpr hsize_t kAlignment = 4096;

// HDF5 may be built without thread support; one call at a time is right in any case.
std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

// Holds the lock and keeps HDF5 from printing its error stack.
class Entry {
 public:
  Entry() : lock_(library_mutex()) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

herr_t take_message(unsigned n, const H5E_error2_t* error, void* text) {
  if (n == 0 && error->desc) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

[[noreturn]] void fail(const std::string& what, const std::string& on) {
  std::string message;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_message, &message);
  H5Eclear2(H5E_DEFAULT);
  throw Error(what, on + (message.empty() ? "" : ": " + message));
}

// An HDF5 identifier, released when it goes out of scope.
class Id {
 public:
  Id(hid_t id, herr_t (*release)(hid_t), const std::string& what, const std::string& on)
      : id_(id), release_(release) {
    if (id_ < 0) fail(what, on);
  }
  ~Id() { release_(id_); }
  Id(const Id&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*release_)(hid_t);
};

void check(herr_t status, const std::string& what, const std::string& on) {
  if (status < 0) fail(what, on);
}

hid_t half_type() {  // IEEE 754 binary16
  hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  if (type < 0 || H5Tset_fields(type, 15, 10, 5, 0, 10) < 0 || H5Tset_size(type, 2) < 0 ||
      H5Tset_ebias(type, 15) < 0)
    return -1;
  return type;
}

// The type in the file. bfloat16 has none in HDF5: stored as its 16 bits; the attribute "dtype" tells.
hid_t file_type(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kBool:
      return H5Tcopy(H5T_STD_U8LE);
    case DType::kI8:
      return H5Tcopy(H5T_STD_I8LE);
    case DType::kI16:
      return H5Tcopy(H5T_STD_I16LE);
    case DType::kU16:
    case DType::kBF16:
      return H5Tcopy(H5T_STD_U16LE);
    case DType::kI32:
      return H5Tcopy(H5T_STD_I32LE);
    case DType::kU32:
      return H5Tcopy(H5T_STD_U32LE);
    case DType::kI64:
      return H5Tcopy(H5T_STD_I64LE);
    case DType::kU64:
      return H5Tcopy(H5T_STD_U64LE);
    case DType::kF16:
      return half_type();
    case DType::kF32:
      return H5Tcopy(H5T_IEEE_F32LE);
    case DType::kF64:
      return H5Tcopy(H5T_IEEE_F64LE);
  }
  return -1;
}

void put_text_attribute(hid_t object, const std::string& name, const std::string& value,
                        const std::string& on) {
  Id type(H5Tcopy(H5T_C_S1), H5Tclose, "cannot make a type", on);
  H5Tset_size(type, std::max<size_t>(value.size(), 1));
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  Id space(H5Screate(H5S_SCALAR), H5Sclose, "cannot make a data space", on);
  Id attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
               "cannot make attribute '" + name + "'", on);
  std::string padded = value.empty() ? std::string(1, '\0') : value;
  check(H5Awrite(attribute, type, padded.data()), "cannot write attribute '" + name + "'", on);
}

std::string strip_padding(std::string text) {
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

std::string text_attribute(hid_t object, const std::string& name, const std::string& on) {
  Id attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "no attribute '" + name + "'", on);
  Id type(H5Aget_type(attribute), H5Tclose, "cannot read attribute '" + name + "'", on);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) > 0)
    throw Error("attribute '" + name + "' is not a text", on);
  std::string value(H5Tget_size(type), '\0');
  check(H5Aread(attribute, type, value.data()), "cannot read attribute '" + name + "'", on);
  return strip_padding(value);
}

// The type of a table's row; `name_size` is the longest name. In memory and in the file it is the same,
// packed.
struct Row {
  size_t name_size, size;
  explicit Row(size_t longest) : name_size(longest), size(longest + 4 + 8 * (kMaxDimensions + 3)) {}
  size_t rank_at() const { return name_size; }
  size_t shape_at() const { return name_size + 4; }
  size_t begin_at() const { return name_size + 4 + 8 * kMaxDimensions; }
};

hid_t row_type(const Row& row) {
  hsize_t dims[1] = {kMaxDimensions};
  hid_t name = H5Tcopy(H5T_C_S1), shape = H5Tarray_create2(H5T_STD_I64LE, 1, dims);
  H5Tset_size(name, row.name_size);
  H5Tset_strpad(name, H5T_STR_NULLPAD);
  H5Tset_cset(name, H5T_CSET_UTF8);
  hid_t type = H5Tcreate(H5T_COMPOUND, row.size);
  bool good = H5Tinsert(type, "name", 0, name) >= 0 &&
              H5Tinsert(type, "rank", row.rank_at(), H5T_STD_I32LE) >= 0 &&
              H5Tinsert(type, "shape", row.shape_at(), shape) >= 0 &&
              H5Tinsert(type, "begin", row.begin_at(), H5T_STD_U64LE) >= 0 &&
              H5Tinsert(type, "end", row.begin_at() + 8, H5T_STD_U64LE) >= 0 &&
              H5Tinsert(type, "offset", row.begin_at() + 16, H5T_STD_U64LE) >= 0;
  H5Tclose(name);
  H5Tclose(shape);
  if (good) return type;
  H5Tclose(type);
  return -1;
}

}  // namespace

Hdf5File Hdf5File::create(int fd, const std::string& path) {
  Entry entry;
  Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "cannot make a property list", path);
  check(H5Pset_userblock(creation, kHeaderBytes), "cannot set the user block", path);
  Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "cannot make a property list", path);
  check(set_descriptor_driver(access, fd), "cannot set the driver", path);
  check(H5Pset_alignment(access, 64 << 10, kAlignment), "cannot set the alignment", path);
  check(H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18), "cannot set the format", path);
  hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access);
  if (file < 0) fail("cannot create", path);
  return Hdf5File(file, path);
}

Hdf5File Hdf5File::open(const std::string& path) {
  Entry entry;
  hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file < 0) fail("cannot open", path);
  return Hdf5File(file, path);
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept : file_(other.file_), path_(std::move(other.path_)) {
  other.file_ = -1;
}

Hdf5File::~Hdf5File() {
  if (file_ < 0) return;
  Entry entry;
  H5Fclose(file_);
}

void Hdf5File::close() {
  Entry entry;
  hid_t file = file_;
  file_ = -1;
  check(H5Fclose(file), "cannot close", path_);
}

void Hdf5File::create_group(const std::string& name) {
  Entry entry;
  Id group(H5Gcreate2(file_, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose,
           "cannot create group '" + name + "'", path_);
}

void Hdf5File::set_attribute(const std::string& name, int64_t value) {
  Entry entry;
  Id space(H5Screate(H5S_SCALAR), H5Sclose, "cannot make a data space", path_);
  Id attribute(H5Acreate2(file_, name.c_str(), H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
               "cannot make attribute '" + name + "'", path_);
  check(H5Awrite(attribute, H5T_NATIVE_INT64, &value), "cannot write attribute '" + name + "'", path_);
}

void Hdf5File::set_attribute(const std::string& name, const std::string& value) {
  Entry entry;
  put_text_attribute(file_, name, value, path_);
}

uint64_t Hdf5File::create_flat(const std::string& name, DType dtype, uint64_t count) {
  Entry entry;
  const std::string on = path_ + " dataset '" + name + "'";
  hsize_t dims[1] = {count};
  Id space(H5Screate_simple(1, dims, nullptr), H5Sclose, "cannot make a data space", on);
  Id type(file_type(dtype), H5Tclose, "cannot make a type", on);
  Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "cannot make a property list", on);
  check(H5Pset_layout(creation, H5D_CONTIGUOUS), "cannot set the layout", on);
  check(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), "cannot set early allocation", on);
  check(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), "cannot set the fill time", on);
  Id dataset(H5Dcreate2(file_, name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose,
             "cannot create", on);
  put_text_attribute(dataset, "dtype", name_of(dtype), on);
  if (count == 0) return 0;
  haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) fail("cannot place", on);
  return offset;
}

void Hdf5File::write_table(const std::string& name, const std::vector<TensorSlice>& slices) {
  Entry entry;
  const std::string on = path_ + " table '" + name + "'";
  size_t longest = 1;
  for (const TensorSlice& slice : slices) {
    longest = std::max(longest, slice.name.size());
    if (slice.shape.size() > kMaxDimensions)
      throw Error("too many dimensions", on + " tensor '" + slice.name + "'", "at most 8 can be stored");
  }
  const Row row(longest);
  std::vector<char> rows(row.size * slices.size(), 0);
  for (size_t i = 0; i < slices.size(); ++i) {
    const TensorSlice& slice = slices[i];
    char* at = rows.data() + i * row.size;
    std::memcpy(at, slice.name.data(), slice.name.size());
    int32_t rank = static_cast<int32_t>(slice.shape.size());
    std::memcpy(at + row.rank_at(), &rank, 4);
    if (rank) std::memcpy(at + row.shape_at(), slice.shape.data(), 8 * slice.shape.size());
    const uint64_t numbers[3] = {slice.begin, slice.end, slice.offset};
    std::memcpy(at + row.begin_at(), numbers, sizeof numbers);
  }
  hsize_t dims[1] = {slices.size()};
  Id space(H5Screate_simple(1, dims, nullptr), H5Sclose, "cannot make a data space", on);
  Id type(row_type(row), H5Tclose, "cannot make a type", on);
  Id dataset(H5Dcreate2(file_, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose,
             "cannot create", on);
  if (!slices.empty())
    check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()), "cannot write", on);
}

void Hdf5File::write_text(const std::string& name, const std::string& text) {
  Entry entry;
  const std::string on = path_ + " record '" + name + "'";
  const std::string padded = text.empty() ? std::string(1, '\0') : text;
  Id type(H5Tcopy(H5T_C_S1), H5Tclose, "cannot make a type", on);
  check(H5Tset_size(type, padded.size()), "cannot make a type", on);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  Id space(H5Screate(H5S_SCALAR), H5Sclose, "cannot make a data space", on);
  Id dataset(H5Dcreate2(file_, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose,
             "cannot create", on);
  check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, padded.data()), "cannot write", on);
}

std::vector<std::string> Hdf5File::names_in(const std::string& group_name) const {
  Entry entry;
  const std::string on = path_ + " group '" + group_name + "'";
  Id group(H5Gopen2(file_, group_name.c_str(), H5P_DEFAULT), H5Gclose, "cannot open", on);
  std::vector<std::string> names;
  auto add = [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
    static_cast<std::vector<std::string>*>(to)->emplace_back(name);
    return 0;
  };
  hsize_t index = 0;
  check(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &index, add, &names), "cannot list", on);
  return names;
}

Hdf5File::Flat Hdf5File::flat(const std::string& name) const {
  Entry entry;
  const std::string on = path_ + " dataset '" + name + "'";
  Id dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose, "cannot open", on);
  Id space(H5Dget_space(dataset), H5Sclose, "cannot read the data space", on);
  hssize_t count = H5Sget_simple_extent_npoints(space);
  if (count < 0) fail("cannot read the data space", on);
  Flat result{dtype_from_name(text_attribute(dataset, "dtype", on)), static_cast<uint64_t>(count), 0};
  if (count > 0) {
    haddr_t offset = H5Dget_offset(dataset);
    if (offset == HADDR_UNDEF) fail("is not contiguous", on);
    result.offset = offset;
  }
  return result;
}

std::vector<TensorSlice> Hdf5File::read_table(const std::string& name) const {
  Entry entry;
  const std::string on = path_ + " table '" + name + "'";
  Id dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose, "cannot open", on);
  Id space(H5Dget_space(dataset), H5Sclose, "cannot read the data space", on);
  hssize_t count = H5Sget_simple_extent_npoints(space);
  if (count < 0) fail("cannot read the data space", on);
  Id stored(H5Dget_type(dataset), H5Tclose, "cannot read the type", on);
  const size_t fixed = Row(0).size, size = H5Tget_size(stored);
  if (size <= fixed) throw Error("not a table of tensors", on);
  const Row row(size - fixed);
  Id type(row_type(row), H5Tclose, "cannot make a type", on);
  if (H5Tequal(type, stored) <= 0) throw Error("not a table of tensors", on);
  std::vector<char> rows(size * count);
  if (count > 0) check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()), "cannot read", on);
  std::vector<TensorSlice> slices(count);
  for (hssize_t i = 0; i < count; ++i) {
    const char* at = rows.data() + i * size;
    TensorSlice& slice = slices[i];
    slice.name.assign(at, strnlen(at, row.name_size));
    int32_t rank;
    std::memcpy(&rank, at + row.rank_at(), 4);
    if (rank < 0 || rank > kMaxDimensions)
      throw Error("bad number of dimensions", on + " tensor '" + slice.name + "'");
    slice.shape.resize(rank);
    if (rank) std::memcpy(slice.shape.data(), at + row.shape_at(), 8 * rank);
    uint64_t numbers[3];
    std::memcpy(numbers, at + row.begin_at(), sizeof numbers);
    slice.begin = numbers[0], slice.end = numbers[1], slice.offset = numbers[2];
  }
  return slices;
}

std::string Hdf5File::read_text(const std::string& name) const {
  Entry entry;
  const std::string on = path_ + " record '" + name + "'";
  Id dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose, "cannot open", on);
  Id type(H5Dget_type(dataset), H5Tclose, "cannot read the type", on);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) > 0) throw Error("not a text", on);
  std::string text(H5Tget_size(type), '\0');
  check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()), "cannot read", on);
  return strip_padding(text);
}

}  // namespace mso
