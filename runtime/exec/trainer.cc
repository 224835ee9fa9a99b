#include "exec/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "ckpt/level0_store.h"
#include "ckpt/recovery.h"
#include "exec/evaluator.h"
#include "exec/rank_zero.h"
#include "exec/stop_signal.h"
#include "memory/slice_scope.h"
#include "record/report_html.h"

namespace mso {

namespace {

// Updates left out in a row, for gradients that are not finite, before the run ends: by then it diverged.
constexpr uint64_t kMaxSkippedUpdates = 20;
// Steps in a row of which no sample could be used, before the run ends.
constexpr uint64_t kMaxEmptySteps = 3;
constexpr double kStorageRecordEveryS = 10, kDataRecordEveryS = 10;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<ParameterGroupRule> group_rules(const TrainConfig& config) {
  std::vector<ParameterGroupRule> rules;
  for (const ParameterGroup& group : config.groups)
    rules.push_back({group.match, group.learning_rate_scale, group.weight_decay.value_or(-1)});
  return rules;
}

}  // namespace

Trainer::Trainer(World& world, TrainingParts parts)
    : world_(world),
      parts_(std::move(parts)),
      config_(parts_.config),
      timeout_s_(config_.parallel.timeout_s),
      attempt_(parts_.checkpoint_settings.attempt),
      data_parallel_(world.communicator().split(0, world.rank(), "data parallel")) {
  OptimizerOptions options{config_.train.beta1,          config_.train.beta2,     config_.train.epsilon,
                           config_.train.weight_decay,   config_.train.grad_clip_norm, parts_.gradient_buffers,
                           group_rules(config_.train)};
  std::vector<Bucket> buckets =
      plan_buckets(parts_.graph->layout(), parts_.plan.bucket_elements, data_parallel_->size());
  optimizer_ = std::make_unique<ShardedOptimizer>(*parts_.graph, *data_parallel_, buckets, options);
  reducer_ = std::make_unique<GradientReducer>(*data_parallel_, parts_.graph->layout(), buckets, parts_.graph->gradients());
  schedule_ = {config_.train.learning_rate, config_.train.min_learning_rate,
               static_cast<uint64_t>(config_.train.warmup_steps), parts_.total_steps, config_.train.schedule};
}

Trainer::~Trainer() = default;

ExitCode Trainer::run() {
  if (is_recorder()) {
    metrics_ = std::make_unique<MetricsWriter>(parts_.directory.path / "metrics.jsonl");
    ledger_file_ = std::make_unique<Ledger>(Ledger::open(parts_.directory.path / "ledger.jsonl"));
  }
  if (!resume()) return leave_finished(step_);
  record_process(parts_.directory, world_);
  install_stop_signals();
  if (is_recorder() && step_ < parts_.total_steps)
    log_info("training from step {} to {}, {} samples a step; reading the first ones", step_ + 1, parts_.total_steps,
             config_.train.global_batch_samples);

  bool stop = false;
  while (step_ < parts_.total_steps && !stop) {
    stop = train_step();
    const bool last = step_ == parts_.total_steps;
    const uint64_t interval = static_cast<uint64_t>(config_.train.eval_interval);
    if (!stop && (last || (interval > 0 && step_ % interval == 0))) evaluate();
  }

  // Everybody leaves with the final state on shared storage, or says why it is not there.
  SnapshotEvent saved = checkpoints_->write_final(state_view(), deadline_in(10 * timeout_s_));
  record_checkpoint_events();
  if (!saved.ok) {
    const std::string problem = "the final snapshot could not be written: " + saved.error;
    record_incident("level_degraded", problem);
    log_error("{}; the newest whole state is of step {}", problem,
              checkpoints_->last_whole_step() ? std::to_string(*checkpoints_->last_whole_step()) : "none");
  }
  const std::string hash = state_hash();
  if (step_ == parts_.total_steps && saved.ok) remove_level0();
  if (step_ < parts_.total_steps)
    return end(ExitCode::kStoppedBySignal, "stopped by a signal after step " + std::to_string(step_) + ", state " + hash);
  return end(saved.ok ? ExitCode::kSuccess : ExitCode::kFailure,
             "finished " + std::to_string(step_) + " steps, state " + hash);
}

bool Trainer::resume() {
  const auto start = Clock::now();
  std::unique_ptr<Communicator> group = world_.communicator().split(0, world_.rank(), "snapshots");
  std::optional<FoundState> found = find_state(parts_.checkpoint_settings, *group);
  std::optional<ResumeRecord> resume_record;
  std::vector<LedgerEntry> replay = Ledger::load(parts_.directory.path / "ledger.jsonl");
  check_nothing_was_lost(found.has_value());
  check_what_changed(found);
  if (found && is_finished(*found)) {
    step_ = found->choice.step;
    return false;
  }
  on_rank_zero(*data_parallel_, timeout_s_, [&] { record_configuration(parts_.directory, config_); });
  begun_ = true;
  if (found) {
    const LoadReport report = load(*found, *group);
    step_ = report.step;
    if (auto tail = found->records.find("ledger_tail"); tail != found->records.end())
      replay = merge_entries(parse_tail(tail->second), replay);
    if (is_recorder()) {  // a ledger file that was lost gets back what the snapshot knows
      std::vector<LedgerEntry> earlier;
      for (const LedgerEntry& entry : replay)
        if (entry.step < step_) earlier.push_back(entry);
      if (ledger_file_->entries().size() < earlier.size())
        log_warn("ledger.jsonl lacks entries that the snapshot has: written again");
      ledger_file_->append(earlier);
    }
    ResumeRecord record;
    record.attempt = static_cast<int>(attempt_);
    record.level = static_cast<int>(report.level);
    record.step = static_cast<int64_t>(step_);
    record.source = name_of(report.source);
    record.recovery_s = seconds_since(start);
    if (metrics_) record.lost_steps = std::max<int64_t>(0, metrics_->found().last_step - record.step);
    resume_record = record;
  } else if (world_.rank() == 0 && parts_.directory.existed) {
    log_info("no snapshot was written before the last end: starting again from step 0");
  }
  parts_.fill_weights(/*trainable=*/!found);
  if (!found) optimizer_->take_weights();
  optimizer_->publish_weights(timeout_s_);
  // Entries after the state are replayed: a sample that could not be used then is not used now, whatever its file says
  // today, so that repeated steps equal their first run.
  for (const LedgerEntry& entry : replay)
    if (entry.step < step_) ledger_.push_back(entry);
  LoaderPlace place;
  place.step = step_;
  if (found) place.order = DataLoader::order_of_cursor(found->records.at("cursor"));
  place.replayed_until = steps_trained_before(replay);
  place.known = std::move(replay);
  parts_.loader->start(std::move(place));
  checkpoints_ = std::make_unique<CheckpointManager>(
      parts_.checkpoint_settings, std::move(group), found ? std::optional(found->resumed()) : std::nullopt);

  if (!is_recorder()) {
    if (find_terminal().live) other_ranks_logs_ = std::make_unique<LogsAboveLine>();
    return true;
  }
  StartRecord record;
  record.attempt = static_cast<int>(attempt_);
  record.ranks = world_.size();
  record.step = static_cast<int64_t>(step_);
  record.steps = static_cast<int64_t>(std::max(parts_.total_steps, step_));  // train.steps may have been lowered
  record.run_id = parts_.checkpoint_settings.run_id;
  for (const StageInfo& stage : parts_.graph->stages()) record.parameters += stage.parameters;
  metrics_->write(record);
  if (resume_record) metrics_->write(*resume_record);
  tensorboard_ = std::make_unique<TensorBoardWriter>(parts_.directory.path / "tensorboard",
                                                     static_cast<int>(attempt_), static_cast<int64_t>(step_));
  progress_ = std::make_unique<Progress>(ProgressOptions{record.steps, config_.train.log_interval_s, resume_record});
  return true;
}

// Steps before this one were trained on by an earlier attempt, as the diary and the ledger show: they are repeated as
// they were, whatever comes late now.
uint64_t Trainer::steps_trained_before(const std::vector<LedgerEntry>& ledger) {
  uint64_t steps = metrics_ ? static_cast<uint64_t>(std::max<int64_t>(0, metrics_->found().last_step)) : 0;
  broadcast_now(*data_parallel_, reinterpret_cast<char*>(&steps), sizeof steps, 0, timeout_s_);
  for (const LedgerEntry& entry : ledger) steps = std::max(steps, entry.step + 1);
  return steps;
}

// Configuration and data of the run so far against those of this start, before anything is changed: of the state it goes
// on from, else of the newest start. A refused start is not counted.
void Trainer::check_what_changed(const std::optional<FoundState>& found) {
  on_rank_zero(*data_parallel_, timeout_s_, [&] {
    try {
      std::optional<Config> before;
      if (found && found->records.contains("config"))
        before = config_from_json(nlohmann::json::parse(found->records.at("config")), "the snapshot's configuration");
      else
        before = recorded_configuration(parts_.directory);
      if (before) refuse_unsafe_changes(*before, config_);
      if (!found) return;
      const auto cursor = found->records.find("cursor");
      if (cursor == found->records.end())
        throw Error("the snapshot has no loader cursor", "step " + std::to_string(found->choice.step),
                    "it was written by another program", ExitCode::kNoValidState);
      std::string differences;
      for (const std::string& sentence : parts_.loader->differences(cursor->second))
        differences += (differences.empty() ? "" : "; ") + sentence;
      if (!differences.empty())
        throw Error("the data is not what the run was trained on", differences,
                    "restore the data set, or --fresh to start anew beside this run", ExitCode::kBadUsage);
    } catch (const Error& e) {
      if (e.exit_code() == ExitCode::kBadUsage) parts_.attempt->withdraw();
      throw;
    }
  });
}

// All steps are done, their state lies on shared storage, and the diary says that the run came to its end. One that was
// killed in between has its end still to write.
bool Trainer::is_finished(const FoundState& found) {
  char finished = found.choice.step >= parts_.total_steps && found.choice.level != SnapshotLevel::kL0 &&
                  metrics_ && metrics_->found().finished;
  broadcast_now(*data_parallel_, &finished, 1, 0, timeout_s_);
  return finished != 0;
}

ExitCode Trainer::leave_finished(uint64_t steps) {
  if (is_recorder()) {
    parts_.attempt->withdraw();
    const char* key = config_.train.steps ? "train.steps" : "train.epochs";
    log_info("already finished, {} steps: {} asks for {}, so there is nothing to do; to train on, raise it ({})", steps,
             key, parts_.total_steps,
             config_.train.steps ? "train.steps=" + std::to_string(2 * steps) : "train.epochs=…");
    std::error_code ignored;
    if (!std::filesystem::exists(parts_.directory.path / "report.html", ignored)) write_report();
  }
  remove_level0();
  return ExitCode::kSuccess;
}

// The full state, then the steps that are kept as gradients, done again by the optimizer alone.
LoadReport Trainer::load(const FoundState& found, Communicator& group) {
  const CheckpointSettings& settings = parts_.checkpoint_settings;
  LoadReport report = load_state(settings, group, found, optimizer_->load_targets());
  for (const std::string& missing : report.missing_buffers)
    log_warn("the snapshot does not hold {}: it starts from zero, the curve will differ from an undisturbed one", missing);
  for (size_t i = 0; i < found.updates.size(); ++i) {
    const StepUpdate& update = found.updates[i];
    const LoadReport gradient = load_delta(settings, group, found, i, {optimizer_->gradient_target(update.step)});
    report.source = std::max(report.source, gradient.source);
    if (update.applied)
      optimizer_->roll_forward(update.step, update.learning_rate, update.gradient_square, update.label_tokens);
    kill_point("resume_rolled_forward");
  }
  if (!found.updates.empty() && is_recorder())
    log_info("rolled the state of step {} forward over {} kept gradient(s)", found.choice.base_step(),
             found.updates.size());
  return report;
}

// The diary knows of snapshots that were written: without any of them left this is no new run.
void Trainer::check_nothing_was_lost(bool found) {
  on_rank_zero(*data_parallel_, timeout_s_, [&] {
    if (!parts_.directory.existed) return;
    const auto diary = parts_.directory.path / "metrics.jsonl";
    if (const DamagedLines damaged = find_damaged_lines(diary); damaged.count > 0)
      log_warn("{}: {} cannot be read and left as it is; the report leaves it out", diary.string(), damaged.text());
    if (found) return;
    MetricsReader reader(diary);
    Record record;
    while (reader.next(record))
      if (const auto* snapshot = std::get_if<SnapshotRecord>(&record); snapshot && snapshot->ok)
        throw Error("no snapshot is left to resume from",
                    parts_.directory.path.string() + ": metrics.jsonl has a whole one of step " + std::to_string(snapshot->step),
                    "restore the run's checkpoints folder, or start anew with --fresh", ExitCode::kNoValidState);
  });
}

bool Trainer::train_step() {
  const auto start = Clock::now();
  kill_point("train_step_begin");
  DataLoader& loader = *parts_.loader;
  std::vector<uint8_t> mine_codes = loader.open();
  kill_point("train_batch_ready");
  const StepOpening opening =
      agree_on_opening(*data_parallel_, {std::move(mine_codes), stop_signal_received() != 0}, timeout_s_);
  std::vector<uint8_t> late;
  if (loader.decide(opening.codes)) late = agree_on_opening(*data_parallel_, {loader.await_late(), false}, timeout_s_).codes;
  const SettledStep& settled = loader.settle(late);
  kill_point("train_batch_settled");
  RankBatch batch = loader.take();
  enter_in_ledger(batch, settled);

  TrainingGraph& graph = *parts_.graph;
  StepSums mine;
  std::memset(graph.gradients(), 0, graph.layout().size * sizeof(float));
  // The buffer that the gradients go to held those of an earlier step.
  double stall_s = 0;
  if (step_ + 1 > optimizer_->gradient_buffers())
    stall_s = checkpoints_->fence_gradient(step_ + 1 - optimizer_->gradient_buffers(), deadline_in(timeout_s_));
  reducer_->start(optimizer_->gradient_shard(step_ + 1));
  for (size_t i = 0; i < batch.micro_batches.size(); ++i) {
    const MicroBatch& micro_batch = batch.micro_batches[i];
    const bool last = i + 1 == batch.micro_batches.size();
    LossSums loss = graph.forward_backward(micro_batch, [&](size_t tensor) {
      if (last) reducer_->mark_ready(tensor);
    });
    mine.loss += loss.loss;
    mine.labels += static_cast<double>(loss.labels);
    mine.positions += static_cast<double>(micro_batch.size());
    mine.samples += static_cast<double>(micro_batch.samples());
    kill_point("train_micro_batch_done");
  }
  reducer_->finish(deadline_in(timeout_s_));
  kill_point("train_gradients_reduced");

  mine.gradient_square = optimizer_->gradient_square(step_ + 1);
  mine.checkpoint = encode_flags(checkpoints_->flags());
  const StepSums sums = sum_over_ranks(*data_parallel_, mine, timeout_s_);
  const SnapshotDecision decision = checkpoints_->on_agreed(decode_flags(sums.checkpoint));
  if (decision.attempt_lost)
    throw AgreedError("a newer start of this run exists", parts_.directory.path.string(),
                      "this one ends; look at the other. If there is none, its counter `attempt` was set back: write a "
                      "higher number into it");
  kill_point("train_sums_agreed");

  stall_s += checkpoints_->fence(deadline_in(timeout_s_));
  const double learning_rate = learning_rate_at(schedule_, step_);
  ShardedOptimizer::Outcome outcome;
  const bool finite = std::isfinite(sums.gradient_square) && std::isfinite(sums.loss);
  if (finite) {
    outcome = optimizer_->step(step_ + 1, learning_rate, sums.gradient_square, sums.labels, timeout_s_);
    skipped_updates_ = 0;
  } else {
    outcome.gradient_norm = std::sqrt(sums.gradient_square) / std::max(1.0, sums.labels);
    ++skipped_updates_;
  }
  kill_point("train_optimizer_done");
  ++step_;
  last_update_ = {step_, learning_rate, sums.labels, sums.gradient_square, finite};

  if (is_recorder()) {
    StepRecord record;
    record.step = static_cast<int64_t>(step_);
    record.attempt = static_cast<int>(attempt_);
    record.loss = sums.labels > 0 ? sums.loss / sums.labels : kNotANumber;
    record.grad_norm = outcome.gradient_norm;
    record.lr = learning_rate;
    record.tokens = static_cast<int64_t>(sums.positions);
    record.label_tokens = static_cast<int64_t>(sums.labels);
    record.samples = static_cast<int64_t>(sums.samples);
    record.sample_digest = sample_digest(settled.trained_ids());
    record.data_wait_s = batch.wait_s;
    record.snapshot_stall_s = stall_s;
    record.step_s = seconds_since(start);
    metrics_->write(record);
    tensorboard_->step(record);
    progress_->step(record);
    if (!finite)
      record_incident("not_finite", "step " + std::to_string(step_) + ": loss or gradient is not finite, update left out");
  }
  // After the step's line: a state that can be resumed from has its step in the diary.
  if (decision.levels != 0) checkpoints_->begin(decision.levels, state_view());
  record_checkpoint_events();
  record_storage();
  record_data();
  empty_steps_ = sums.labels > 0 ? 0 : empty_steps_ + 1;
  if (empty_steps_ >= kMaxEmptySteps)
    throw AgreedError("nothing to train on", std::to_string(empty_steps_) + " steps in a row without a label",
                "ledger.jsonl says why each sample was left out; with \"too_long\" raise data.max_length", ExitCode::kBadData);
  if (skipped_updates_ >= kMaxSkippedUpdates)
    throw AgreedError("training diverged", std::to_string(skipped_updates_) + " steps in a row with a gradient that is not finite",
                "lower train.learning_rate or lengthen train.warmup_steps, and start with --fresh");
  kill_point("train_step_end");
  return opening.stop;
}

void Trainer::enter_in_ledger(const RankBatch& batch, const SettledStep& settled) {
  const bool all_good = std::ranges::all_of(settled.fates, [](uint8_t code) { return code == 0; });
  if (all_good && settled.deferred.empty()) return;
  // Rank 0 writes the ledger, so it needs what only the owners know: why each sample is bad.
  nlohmann::json own = nlohmann::json::array();
  for (const BadSample& bad : batch.bad_samples) own.push_back({bad.id, bad.index, bad.reason, bad.detail});
  std::vector<BadSample> all;
  const std::string text = own.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (const std::string& of_rank : all_gather_text(*data_parallel_, text, timeout_s_))
    for (const auto& bad : nlohmann::json::parse(of_rank))
      all.push_back({bad[0].get<uint64_t>(), bad[1].get<uint64_t>(), bad[2].get<std::string>(), bad[3].get<std::string>()});
  std::vector<LedgerEntry> entries = parts_.loader->ledger_entries(settled, all);
  if (parts_.healing)
    for (LedgerEntry& entry : entries) entry.category = parts_.healing->category(entry.id);
  ledger_.insert(ledger_.end(), entries.begin(), entries.end());
  if (is_recorder()) {
    ledger_file_->append(entries);
    for (const LedgerEntry& entry : entries) {
      // The rank that owns the sample has logged why.
      const std::string what = entry.key + " of " + entry.shard + ": " + entry.reason;
      if (entry.event == LedgerEvent::kReplaced)
        record_incident("replaced", what + "; by " + entry.by_key + " of " + entry.by_shard);
      else
        record_incident(entry.event == LedgerEvent::kDeferred ? "deferred" : "bad_sample", what);
    }
  }
  kill_point("train_ledger_written");
  if (parts_.healing && !all_good)
    if (const auto sentence = parts_.healing->verdict(ledger_, &losses_))
      throw AgreedError("too much of a category is lost", *sentence,
                        "`mso data report` shows what was lost, `mso data verify` finds it all; repair the data, or raise "
                        "mdp.healing.cap",
                        ExitCode::kBadData);
  const auto unusable = static_cast<uint64_t>(
      std::ranges::count_if(ledger_, [](const LedgerEntry& e) { return e.event != LedgerEvent::kDeferred; }));
  const double seen = static_cast<double>((step_ + 1) * settled.batch.ids.size());
  const double share = static_cast<double>(unusable) / seen;
  // Not before a few hundred samples: one bad sample in the first batch is no trend.
  if (seen >= 256 && share > config_.data.max_bad_samples_ratio)
    throw AgreedError("too many samples could not be used",
                std::to_string(unusable) + " of " + std::to_string(static_cast<uint64_t>(seen)) +
                    ", more than data.max_bad_samples_ratio",
                "`mso data verify` finds them all; repair the data, or raise the limit", ExitCode::kBadData);
}

void Trainer::evaluate() {
  if (!parts_.held_out) return;
  EvaluationResult result = evaluate_held_out(*parts_.graph, *data_parallel_, parts_.held_out,
                                              static_cast<uint64_t>(config_.train.eval_samples),
                                              parts_.loader->options().micro_batch, parts_.decoder_threads, timeout_s_);
  if (!is_recorder()) return;
  EvalRecord record;
  record.step = static_cast<int64_t>(step_);
  record.attempt = static_cast<int>(attempt_);
  record.loss = result.loss;
  record.label_tokens = result.labels;
  metrics_->write(record);
  tensorboard_->eval(record);
  progress_->eval(record);
}

StateView Trainer::state_view() const {
  StateView view;
  view.step = step_;
  view.buffers = optimizer_->state_buffers();
  view.records = parts_.records;
  if (last_update_.step == step_ && optimizer_->gradient_buffers() > 1) {
    view.buffers.push_back(optimizer_->gradient_state(step_));
    view.records["update"] = encode_update(last_update_);
  }
  view.records["cursor"] = parts_.loader->cursor();
  view.records["ledger_tail"] = serialize_tail(ledger_);
  // Every random number is a function of (seed, step, sample, layer): these two are the whole generator state.
  view.records["random"] = nlohmann::json{{"seed", config_.train.seed}, {"step", step_}}.dump();
  return view;
}

void Trainer::record_checkpoint_events() {
  for (const SnapshotEvent& event : checkpoints_->drain_events()) {
    if (!is_recorder()) continue;
    if (event.kind == SnapshotEvent::Kind::kSnapshot) {
      SnapshotRecord record;
      record.attempt = static_cast<int>(attempt_);
      record.level = static_cast<int>(event.level);
      record.step = static_cast<int64_t>(event.step);
      record.write_s = event.write_s;
      record.bytes = static_cast<int64_t>(event.bytes);
      record.ok = event.ok;
      record.degraded = event.degraded;
      record.error = event.error;
      metrics_->write(record);
      progress_->snapshot(record);
    } else {
      const bool degraded = event.kind == SnapshotEvent::Kind::kDegraded;
      record_incident(degraded ? "level_degraded" : "level_recovered",
                      std::string(name_of(event.level)) + (event.error.empty() ? "" : ": " + event.error));
    }
  }
}

void Trainer::record_storage(bool end) {
  const std::vector<StorageEvent> events = parts_.storage->take_events();  // every rank has logged its own
  if (!is_recorder()) return;
  for (const StorageEvent& event : events) record_incident(event.kind, event.message);
  const double now = MetricsWriter::now();
  if (!end && events.empty() && now - storage_recorded_ < kStorageRecordEveryS) return;
  storage_recorded_ = now;
  const StorageStatus status = parts_.storage->status();
  for (const SourceStatus& source : status.sources) {
    StorageRecord record;
    record.step = static_cast<int64_t>(step_);
    record.attempt = static_cast<int>(attempt_);
    record.source = source.name;
    record.state = to_string(source.state);
    record.reads = static_cast<int64_t>(source.reads);
    record.bytes = static_cast<int64_t>(source.bytes);
    record.p50_ms = 1e3 * source.p50_s;
    record.p99_ms = 1e3 * source.p99_s;
    record.errors = static_cast<int64_t>(source.errors);
    record.cached = static_cast<int64_t>(source.cached);
    record.missed = static_cast<int64_t>(source.missed);
    record.elsewhere = static_cast<int64_t>(source.elsewhere);
    record.given_up = static_cast<int64_t>(source.given_up);
    record.cache_bytes = static_cast<int64_t>(status.cache_bytes);
    record.cache_fills = static_cast<int64_t>(status.cache.fills);
    metrics_->write(record);
  }
}

void Trainer::record_data(bool end) {
  if (!is_recorder()) return;
  const double now = MetricsWriter::now();
  if (!end && now - data_recorded_ < kDataRecordEveryS) return;
  data_recorded_ = now;
  const DataLoader::Counters counters = parts_.loader->counters();
  const BatchMemoryUse memory = parts_.loader->memory_use();
  for (Modality modality : kAllModalities) {
    const DataLoader::Counters::OfModality& of = counters.of[modality];
    const auto part = static_cast<size_t>(modality);
    const MemoryShareUse& share = memory.parts[part];
    if (of.samples == 0 && of.depth == 0) continue;
    DataRecord record;
    record.step = static_cast<int64_t>(step_);
    record.attempt = static_cast<int>(attempt_);
    record.modality = name_of(modality);
    record.samples = static_cast<int64_t>(of.samples);
    record.deferred = static_cast<int64_t>(of.deferred);
    record.waits = static_cast<int64_t>(of.waits);
    record.decode_s = of.decode_s;
    record.depth = static_cast<int64_t>(of.depth);
    record.ready = static_cast<int64_t>(of.ready);
    record.memory_share = static_cast<int64_t>(share.share);
    record.memory_used = static_cast<int64_t>(share.used);
    record.memory_borrowed = static_cast<int64_t>(share.borrowed);
    record.memory_peak = static_cast<int64_t>(share.peak);
    record.fragmentation = memory.fragmentation[part];
    record.compactions = static_cast<int64_t>(memory.compactions);
    record.compacted_bytes = static_cast<int64_t>(memory.compacted_bytes);
    record.overflow_bytes = static_cast<int64_t>(memory.overflow_bytes);
    metrics_->write(record);
  }
}

void Trainer::record_incident(const std::string& kind, const std::string& message) {
  if (!is_recorder()) return;
  IncidentRecord record;
  record.attempt = static_cast<int>(attempt_);
  record.kind = kind;
  record.message = message;
  metrics_->write(record);
  if (progress_) progress_->incident(record);
}

std::string Trainer::state_hash() {
  Hasher own;
  for (const StateBuffer& buffer : optimizer_->state_buffers()) own.update(buffer.data, buffer.count * size_of(buffer.dtype));
  std::string joined;
  for (const std::string& hash : all_gather_text(*data_parallel_, hex64(own.digest()), timeout_s_)) joined += hash;
  return hex64(hash64(joined));
}

ExitCode Trainer::end(ExitCode code, const std::string& message) {
  if (is_recorder()) {
    if (progress_) progress_->finish();
    record_storage(true);
    record_data(true);
    EndRecord record;
    record.attempt = static_cast<int>(attempt_);
    record.step = static_cast<int64_t>(step_);
    record.exit_code = static_cast<int>(code);
    record.message = message;
    metrics_->write(record);
    metrics_->sync();
    log_info("{}", message);
    if (const SliceTable* slices = slice_table()) log_info("memory slices at the end: {}", slices->describe());
    write_report();
  }
  return code;
}

// A finished run needs its RAM disk no more: the final L2 has the same state.
void Trainer::remove_level0() {
  checkpoints_.reset();
  barrier_now(*data_parallel_, timeout_s_);
  if (world_.local_rank() != 0) return;
  const CheckpointSettings& settings = parts_.checkpoint_settings;
  std::error_code error;
  std::filesystem::remove_all(Level0Store(settings.level0_path, settings.run_id, settings.attempt, 0).run_directory(), error);
  if (error) log_warn("the Level 0 snapshots of the finished run stay in {}: {}", settings.level0_path.string(), error.message());
}

void Trainer::write_report() noexcept {
  try {
    const auto file = parts_.directory.path / "report.html";
    write_file_durably(file, report_html(read_run(parts_.directory.path), MetricsWriter::now()));
  } catch (const std::exception& e) {
    log_warn("no report: {}", e.what());
  }
}

void Trainer::record_failure(const Error& error) noexcept {
  try {
    if (progress_) progress_->finish();
    if (!metrics_ || (!begun_ && error.exit_code() == ExitCode::kBadUsage)) return;  // refused: not counted
    EndRecord record;
    record.attempt = static_cast<int>(attempt_);
    record.step = static_cast<int64_t>(step_);
    record.exit_code = static_cast<int>(error.exit_code());
    record.message = error.what();
    metrics_->write(record);
  } catch (...) {  // the error itself is what matters
  }
}

}  // namespace mso
