#include "memory/slice_scope.h"

#include <atomic>

namespace mso {

namespace {

constexpr int kOutside = -2;  // of every scope: "shared", where there is such a slice

std::atomic<SliceTable*> process_table = nullptr;
std::atomic<int> shared_slice = -1;
thread_local int slice_of_thread = kOutside;

}  // namespace

void set_slice_table(SliceTable* table) {
  shared_slice = table ? table->slice_of_stage("") : -1;
  process_table = table;
}

SliceTable* slice_table() { return process_table; }

SliceScope::SliceScope(std::string_view stage) : before_(slice_of_thread) {
  if (const SliceTable* table = process_table) slice_of_thread = table->slice_of_stage(stage);
}

SliceScope::~SliceScope() { slice_of_thread = before_; }

int current_slice() {
  if (!process_table) return -1;
  return slice_of_thread == kOutside ? shared_slice.load() : slice_of_thread;
}

}  // namespace mso
