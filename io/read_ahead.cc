#include "io/read_ahead.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace mso {

namespace {
constexpr uint64_t kMostStepsAhead = 4096;
constexpr size_t kRemembered = 16384;
// Decoders work at most so many steps ahead of the one that is due, so what was read longer ago is for another epoch.
constexpr uint64_t kDecodersAhead = 40;
}  // namespace

ReadAhead::ReadAhead(std::shared_ptr<ShardCache> cache, double deadline_s, Work work)
    : cache_(std::move(cache)), deadline_s_(deadline_s), work_(std::make_shared<const Work>(std::move(work))) {}

void ReadAhead::follow(std::function<std::vector<ShardRange>(uint64_t)> upcoming) {
  std::lock_guard lock(mutex_);
  upcoming_ = std::move(upcoming);
  next_step_ = due_step_;
}

bool ReadAhead::follows() const {
  std::lock_guard lock(mutex_);
  return upcoming_ != nullptr;
}

void ReadAhead::at_step(uint64_t step) {
  std::lock_guard lock(mutex_);
  if (step < due_step_ || next_step_ < step) {  // started again somewhere else, or nothing was fetched meanwhile
    next_step_ = step;
    queue_.clear();
    queued_.clear();
    ahead_.clear();
    ahead_bytes_ = 0;
  }
  due_step_ = step;
  while (!ahead_.empty() && ahead_.front().first < step) {
    ahead_bytes_ -= ahead_.front().second;
    ahead_.pop_front();
  }
  // What lies in memory for steps that are over was read by other means.
  std::erase_if(pieces_, [&](const auto& entry) {
    if (!entry.second->done || (entry.second->step >= step && entry.second->step != UINT64_MAX)) return false;
    in_memory_ -= entry.second->bytes.size();
    return true;
  });
}

void ReadAhead::was_read(const ShardRange& range) {
  if (cache_) {  // what nobody announced (held-out samples) gets into the cache this way
    const AheadShard shard = work_->shard(range.shard);
    for (uint64_t at = range.offset / ShardCache::kChunk * ShardCache::kChunk; at < range.offset + range.size; at += ShardCache::kChunk)
      if (!cache_->contains(shard.cache_id, at / ShardCache::kChunk)) {
        std::lock_guard lock(mutex_);
        if (pieces_.contains({range.shard, at}) || !queued_.insert({range.shard, at}).second) continue;
        auto piece = std::make_shared<Piece>();
        piece->range = {range.shard, range.modality, at, std::min(ShardCache::kChunk, shard.bytes - at)};
        piece->step = UINT64_MAX;  // of no step, so never out of date
        queue_.push_back(std::move(piece));
      }
    return;
  }
  std::lock_guard lock(mutex_);
  const Key key(range.shard, range.offset);
  if (!read_.insert_or_assign(key, due_step_).second) return;
  read_order_.push_back(key);
  if (read_order_.size() > kRemembered) {
    read_.erase(read_order_.front());
    read_order_.pop_front();
  }
}

bool ReadAhead::take(const ShardRange& range, std::span<std::byte> to, Clock::time_point until) {
  if (cache_) {
    for (uint64_t at = range.offset; at < range.offset + range.size;) {
      const uint64_t chunk_end = (at / ShardCache::kChunk + 1) * ShardCache::kChunk;
      const uint64_t size = std::min(chunk_end, range.offset + range.size) - at;
      if (!take_chunk({range.shard, range.modality, at, size}, to.subspan(at - range.offset, size), until)) return false;
      at += size;
    }
    return true;
  }
  std::unique_lock lock(mutex_);
  const auto at = pieces_.find({range.shard, range.offset});
  if (at == pieces_.end() || at->second->range.size != range.size) return false;
  const std::shared_ptr<Piece> piece = at->second;
  if (!changed_.wait_until(lock, until, [&] { return piece->done || piece->failed; }) || piece->failed) return false;
  std::memcpy(to.data(), piece->bytes.data(), to.size());
  if (pieces_.erase({range.shard, range.offset}) > 0) in_memory_ -= piece->bytes.size();
  return true;
}

bool ReadAhead::has(const ShardRange& range) const {
  if (cache_) {
    const uint64_t id = work_->shard(range.shard).cache_id;
    for (uint64_t chunk = range.offset / ShardCache::kChunk; chunk * ShardCache::kChunk < range.offset + range.size; ++chunk)
      if (!cache_->contains(id, chunk)) return false;
    return true;
  }
  std::lock_guard lock(mutex_);
  const auto at = pieces_.find({range.shard, range.offset});
  return at != pieces_.end() && at->second->done && at->second->range.size == range.size;
}

bool ReadAhead::take_chunk(const ShardRange& part, std::span<std::byte> to, Clock::time_point until) {
  const uint64_t chunk = part.offset / ShardCache::kChunk, in_chunk = part.offset % ShardCache::kChunk;
  const AheadShard shard = work_->shard(part.shard);
  if (cache_->read(shard.cache_id, chunk, in_chunk, to)) return true;
  const Key key(part.shard, chunk * ShardCache::kChunk);
  {
    std::unique_lock lock(mutex_);
    const auto at = pieces_.find(key);
    if (at == pieces_.end()) {
      if (!queued_.insert(key).second) return false;
      auto piece = std::make_shared<Piece>();
      piece->range = {part.shard, part.modality, key.second, std::min(ShardCache::kChunk, shard.bytes - key.second)};
      piece->step = due_step_;
      queue_.push_front(std::move(piece));  // its other samples will be asked for too
      return false;
    }
    const std::shared_ptr<Piece> piece = at->second;
    if (!changed_.wait_until(lock, until, [&] { return piece->done || piece->failed; }) || piece->failed) return false;
    if (!piece->bytes.empty()) {
      std::memcpy(to.data(), piece->bytes.data() + in_chunk, to.size());
      return true;
    }
  }
  return cache_->read(shard.cache_id, chunk, in_chunk, to);
}

void ReadAhead::queue_pieces(uint64_t step, const std::vector<ShardRange>& ranges) {
  uint64_t bytes = 0;
  std::vector<std::shared_ptr<Piece>> fresh;
  for (const ShardRange& range : ranges) {
    if (range.size == 0) continue;
    auto add = [&](const ShardRange& wanted) {
      auto piece = std::make_shared<Piece>();
      piece->range = wanted;
      piece->step = step;
      bytes += wanted.size;
      fresh.push_back(std::move(piece));
    };
    if (!cache_) {
      add(range);
      continue;
    }
    const AheadShard shard = work_->shard(range.shard);
    auto fresh_key = [&](const Key& key) {
      std::lock_guard lock(mutex_);
      return !pieces_.contains(key) && queued_.insert(key).second;
    };
    for (uint64_t at = range.offset / ShardCache::kChunk * ShardCache::kChunk; at < range.offset + range.size;
         at += ShardCache::kChunk)
      if (!cache_->contains(shard.cache_id, at / ShardCache::kChunk) && fresh_key({range.shard, at}))
        add({range.shard, range.modality, at, std::min(ShardCache::kChunk, shard.bytes - at)});
  }
  std::lock_guard lock(mutex_);
  for (std::shared_ptr<Piece>& piece : fresh) queue_.push_back(std::move(piece));
  ahead_.emplace_back(step, bytes);
  ahead_bytes_ += bytes;
}

bool ReadAhead::plan_more(uint64_t memory_bytes) {
  std::function<std::vector<ShardRange>(uint64_t)> upcoming;
  uint64_t step;
  {
    std::lock_guard lock(mutex_);
    if (!upcoming_ || next_step_ >= due_step_ + kMostStepsAhead) return false;
    if (ahead_bytes_ >= (cache_ ? cache_->max_bytes() / 2 : memory_bytes)) return false;
    upcoming = upcoming_;
    step = next_step_++;
  }
  queue_pieces(step, upcoming(step));
  return true;
}

void ReadAhead::fetch(Piece& piece, ShardCache* cache, const Work& work) {
  try {
    std::vector<std::byte> bytes(piece.range.size);
    if (cache) {
      const uint64_t id = work.shard(piece.range.shard).cache_id, chunk = piece.range.offset / ShardCache::kChunk;
      // Another rank that fetches it does it for all.
      const auto held = cache->lock(id, chunk, Clock::now() + std::chrono::seconds(2));
      if (cache->contains(id, chunk)) return;
      work.fetch(piece.range, bytes);
      if (cache->write(id, chunk, bytes)) return;
    } else {
      work.fetch(piece.range, bytes);
    }
    piece.bytes = std::move(bytes);
  } catch (const std::exception& error) {  // who needs the bytes reads them and is told
    piece.threw = true;
    log_debug("read ahead failed: {}", error.what());
  }
}

void ReadAhead::came(const std::shared_ptr<Piece>& piece) {
  std::lock_guard lock(mutex_);
  if (piece->failed) return;  // given up meanwhile
  --under_way_;
  piece->failed = piece->threw;
  piece->done = !piece->threw;
  fetched_ += piece->done;
  in_memory_ += piece->bytes.size();
  if (piece->bytes.empty()) pieces_.erase({piece->range.shard, piece->range.offset});
  changed_.notify_all();
}

void ReadAhead::pump(IoPool& pool, int at_a_time, uint64_t memory_bytes) {
  const auto now = Clock::now();
  {
    std::lock_guard lock(mutex_);
    std::erase_if(pieces_, [&](const auto& entry) {
      Piece& piece = *entry.second;
      if (piece.done || std::chrono::duration<double>(now - piece.begin).count() < deadline_s_) return false;
      pool.leave(piece.job);
      piece.failed = true;
      --under_way_;
      changed_.notify_all();
      return true;
    });
  }
  for (;;) {
    std::shared_ptr<Piece> piece;
    {
      std::lock_guard lock(mutex_);
      if (under_way_ >= at_a_time || in_memory_ >= memory_bytes) return;
      if (!queue_.empty()) {
        piece = std::move(queue_.front());
        queue_.pop_front();
        const Key key(piece->range.shard, piece->range.offset);
        queued_.erase(key);
        const auto read = read_.find(key);
        if (piece->step < due_step_ || (read != read_.end() && piece->step <= read->second + kDecodersAhead) ||
            !pieces_.emplace(key, piece).second)
          continue;
        piece->begin = now;
        ++under_way_;
      }
    }
    if (!piece) {
      if (!plan_more(memory_bytes)) return;
      continue;
    }
    try {
      auto job = pool.start([piece, cache = cache_, work = work_] { fetch(*piece, cache.get(), *work); },
                            [self = shared_from_this(), piece] {
                              self->came(piece);
                              self->work_->ended();
                            });
      std::lock_guard lock(mutex_);
      piece->job = std::move(job);
    } catch (const Error&) {  // all threads are stuck
      std::lock_guard lock(mutex_);
      piece->failed = true;
      --under_way_;
      pieces_.erase({piece->range.shard, piece->range.offset});
      changed_.notify_all();
      return;
    }
  }
}

bool ReadAhead::busy() const {
  std::lock_guard lock(mutex_);
  return under_way_ > 0;
}

uint64_t ReadAhead::fetched() const {
  std::lock_guard lock(mutex_);
  return fetched_;
}

}  // namespace mso
