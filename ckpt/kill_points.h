// Every named moment at which MSO_KILL_AT can kill a process that trains and takes snapshots.
#pragma once

#include <string_view>

namespace mso {

struct KillPoint {
  std::string_view name, state;
};

// Of a training step; they stand in runtime/exec.
inline constexpr KillPoint kTrainingKillPoints[] = {
    {"train_step_begin", "the step has not begun"},
    {"train_batch_ready", "this rank has its samples"},
    {"train_ledger_written", "samples that could not be used are in the ledger, the step is not trained"},
    {"train_micro_batch_done", "one micro-batch is through"},
    {"train_gradients_reduced", "the step's gradients are summed over ranks"},
    {"train_sums_agreed", "loss, norm and snapshot flags are summed"},
    {"train_optimizer_done", "this rank has the new weights"},
    {"train_step_end", "the step's line is in metrics.jsonl"},
    {"resume_rolled_forward", "resuming, the state is rolled forward over one kept gradient"},
};

// Of writing snapshots, and what is on disk then.
inline constexpr KillPoint kKillPoints[] = {
    {"l0_begin", "nothing of this L0 snapshot is written"},
    {"l0_after_spares", "an older generation's deltas (own or the partner's) were made spare files, its full state is there"},
    {"l0_after_reuse", "the older generation was renamed to a temporary name (or a new file made)"},
    {"l0_after_half_written", "half of the file is written, under the temporary name"},
    {"l0_before_header", "all but the header is written, under the temporary name"},
    {"l0_before_rename", "the file is whole, under the temporary name"},
    {"l0_after_rename", "this rank's own file is visible"},
    {"l0_delta_begin", "nothing of this L0 delta is written"},
    {"l0_delta_after_reuse", "a spare file was renamed to a temporary name (or a new file made)"},
    {"l0_delta_after_half_written", "half of the delta is written, under the temporary name"},
    {"l0_delta_before_header", "all but the delta's header is written, under the temporary name"},
    {"l0_delta_before_rename", "the delta is whole, under the temporary name"},
    {"l0_delta_after_rename", "this rank's own delta is visible"},
    {"partner_begin", "own file visible, the copy for the partner not sent"},
    {"partner_after_half_received", "half of the partner's copy is written, under a temporary name"},
    {"partner_before_rename", "the partner's copy is whole, under the temporary name"},
    {"partner_after_rename", "the partner's copy is visible"},
    {"partner_delta_begin", "own delta visible, the copy for the partner not sent"},
    {"partner_delta_after_half_received", "half of the copy of the partner's delta is written, under a temporary name"},
    {"partner_delta_before_rename", "the copy of the partner's delta is whole, under the temporary name"},
    {"partner_delta_after_rename", "the copy of the partner's delta is visible"},
    {"l0_agreed", "all ranks know that the L0 snapshot is whole"},
    {"l0_delta_agreed", "all ranks know that the L0 delta is whole"},
    {"l1_begin", "nothing of this L1 snapshot is written"},
    {"l1_after_copy", "the state is copied to private memory"},
    {"l1_after_directory", "the temporary directory exists"},
    {"l1_after_half_written", "half of this rank's file is written"},
    {"l1_before_header", "all but the header of this rank's file is written"},
    {"l1_before_sync", "this rank's file is written, not synced"},
    {"l1_after_sync", "this rank's file is synced"},
    {"l1_commit_begin", "all ranks' files are synced, no manifest"},
    {"l1_commit_after_manifest", "manifest and directory are synced, under the temporary name"},
    {"l1_commit_after_rename", "the state is visible, its parent directory not synced"},
    {"l1_commit_before_prune", "the state is durable, the oldest one still there"},
    {"l1_prune_after_rename", "the oldest state was renamed to a temporary name"},
    {"l1_prune_half", "one file of the oldest state is removed"},
    {"l1_agreed", "all ranks know that the L1 snapshot is whole"},
    {"l2_begin", "nothing of this L2 snapshot is written"},
    {"l2_after_copy", "the state is copied to private memory"},
    {"l2_after_directory", "the temporary directory exists"},
    {"l2_after_half_written", "half of this rank's file is written"},
    {"l2_before_header", "all but the header of this rank's file is written"},
    {"l2_before_sync", "this rank's file is written, not synced"},
    {"l2_after_sync", "this rank's file is synced"},
    {"l2_commit_begin", "all ranks' files are synced, no manifest"},
    {"l2_commit_after_manifest", "manifest and directory are synced, under the temporary name"},
    {"l2_commit_after_rename", "the state is visible, its parent directory not synced"},
    {"l2_commit_before_prune", "the state is durable, the oldest one still there"},
    {"l2_prune_after_rename", "the oldest state was renamed to a temporary name"},
    {"l2_prune_half", "one file of the oldest state is removed"},
    {"l2_agreed", "all ranks know that the L2 snapshot is whole"},
};

}  // namespace mso
