#include "comm/mpi_communicator.h"

#include "base/error.h"
#include "comm/mpi_operation.h"

namespace mso {

namespace {

constexpr double kSplitTimeoutS = 120;

// Takes `base` over.
MpiGroupPtr make_group(MPI_Comm base, const std::string& name) {
  auto group = std::make_shared<MpiGroup>();
  group->name = name;
  group->messages = base;
  MPI_Comm_set_errhandler(base, MPI_ERRORS_RETURN);
  check_mpi(MPI_Comm_dup(base, &group->collectives), "making a group", *group);
  MPI_Comm_set_errhandler(group->collectives, MPI_ERRORS_RETURN);
  MPI_Comm_rank(base, &group->rank);
  MPI_Comm_size(base, &group->size);
  int* limit = nullptr;
  int found = 0;
  MPI_Comm_get_attr(group->collectives, MPI_TAG_UB, &limit, &found);
  if (found) group->tag_limit = *limit;
  return group;
}

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(MpiGroupPtr group) : group_(std::move(group)) {}
  ~MpiCommunicator() override {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (!finalised) sweep_cancelled_operations();
  }

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size; }
  const std::string& name() const override { return group_->name; }

  HandlePtr all_reduce(void* data, size_t count, DType dtype, ReduceOp op) override {
    return start_all_reduce(group_, data, count, dtype, op);
  }
  HandlePtr reduce_scatter(const void* input, void* output, std::span<const size_t> counts, DType dtype,
                           ReduceOp op) override {
    return start_reduce_scatter(group_, input, output, counts, dtype, op);
  }
  HandlePtr all_gather(const void* input, void* output, std::span<const size_t> counts,
                       DType dtype) override {
    return start_all_gather(group_, input, output, counts, dtype);
  }
  HandlePtr broadcast(void* data, size_t bytes, int root) override {
    return start_broadcast(group_, data, bytes, root);
  }
  HandlePtr barrier() override { return start_barrier(group_); }
  HandlePtr send(const void* data, size_t bytes, int peer, int tag) override {
    return start_send(group_, data, bytes, peer, tag);
  }
  HandlePtr receive(void* data, size_t bytes, int peer, int tag) override {
    return start_receive(group_, data, bytes, peer, tag);
  }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    // MPI's own split blocks for ever where a rank is missing, so first see that all are here.
    barrier_now(*this, kSplitTimeoutS);
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(group_->messages, color < 0 ? MPI_UNDEFINED : color, key, &part),
              "splitting for group '" + name + "'", *group_);
    if (part == MPI_COMM_NULL) return nullptr;
    return std::make_unique<MpiCommunicator>(make_group(part, name));
  }

 private:
  MpiGroupPtr group_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent, const std::string& name) {
  MPI_Comm copy = MPI_COMM_NULL;
  MpiGroup nameless;
  nameless.name = name;
  check_mpi(MPI_Comm_dup(parent, &copy), "making a group", nameless);
  return std::make_unique<MpiCommunicator>(make_group(copy, name));
}

}  // namespace mso
