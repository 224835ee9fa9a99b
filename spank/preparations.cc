#include "spank/preparation.h"

namespace mso {

std::vector<std::unique_ptr<Preparation>> make_preparations() {
  std::vector<std::unique_ptr<Preparation>> preparations;
  preparations.push_back(make_snapshot_preparation());  // first: it makes the job's folder
  preparations.push_back(make_nvme_preparation());
  preparations.push_back(make_slice_preparation());
  preparations.push_back(make_cpu_preparation());  // decoding is put near the drives that were reserved
  preparations.push_back(make_io_preparation());   // of the drives that were reserved
  return preparations;
}

}  // namespace mso
