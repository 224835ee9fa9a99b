#include "io/storage.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/suggest.h"
#include "io/io_pool.h"
#include "io/read_ahead.h"
#include "io/shard_index.h"
#include "io/watched_source.h"

namespace mso {

using Clock = std::chrono::steady_clock;

namespace {

constexpr const char* kModalities[] = {"text", "image", "video", "audio", "any"};
constexpr int kFetchesWhenSlow = 12, kFetchesWhenFar = 6, kFetchesWhenHealthy = 2;
constexpr uint64_t kMemoryWhenFar = uint64_t{32} << 20;  // read ahead of what no cache holds: enough to hide milliseconds
constexpr int kTries = 4;

int place_of_modality(uint8_t bits) {
  if (bits & kHasVideo) return 2;
  if (bits & kHasAudio) return 3;
  if (bits & kHasImage) return 1;
  return bits & kHasText ? 0 : 4;
}

struct KnownShard {
  std::string file;
  uint64_t bytes = 0, fingerprint = 0, cache_id = 0;
  uint32_t folder = 0;
};

struct Folder {
  WatchedSource* own = nullptr;
  std::vector<WatchedSource*> routes[std::size(kModalities)];  // by modality; own one last unless it is listed
};

double unix_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

Clock::duration seconds(double s) { return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s)); }

}  // namespace

void check_storage_options(const StorageOptions& options) {
  std::vector<std::string> known(std::begin(kModalities), std::end(kModalities));
  for (const auto& [modality, urls] : options.sources) {
    if (std::find(known.begin(), known.end(), modality) == known.end()) {
      const std::string near = nearest_name(modality, known);
      throw Error("unknown modality", "mdp.sources." + modality,
                  near.empty() ? "text, image, video, audio or any" : "did you mean " + near + "?", ExitCode::kBadUsage);
    }
    if (urls.empty()) throw Error("no folder given", "mdp.sources." + modality, "a folder, or a list of folders", ExitCode::kBadUsage);
  }
  if (!options.cache_path.empty() && options.cache_bytes < 4 * ShardCache::kChunk)
    throw Error("too small for a cache", "mdp.cache.max_bytes: " + std::to_string(options.cache_bytes), "4M or more",
                ExitCode::kBadUsage);
}

struct Storage::Impl : std::enable_shared_from_this<Storage::Impl> {
  explicit Impl(StorageOptions o)
      : options(std::move(o)), readers(options.threads, options.most_left_behind),
        fetchers(options.threads, options.most_left_behind) {
    options.policy.limit_s = options.latency_limit_s;
    // A read under way for far longer than the limit tells as much as one that ended.
    options.policy.late_s = std::min(std::max(options.policy.late_s, 5 * options.latency_limit_s), options.read_deadline_s);
  }

  WatchedSource* source(const std::string& url);  // with the lock held
  uint32_t folder(const std::string& url);        // with the lock held
  KnownShard shard(uint32_t number) const {
    std::lock_guard lock(mutex);
    return shards.at(number);
  }
  std::vector<WatchedSource*> route(const KnownShard& shard, uint8_t modality) const;
  bool usable(WatchedSource& source, const KnownShard& shard, const WatchedSource* own) const;

  std::vector<std::byte> read(const ShardRange& range);
  void fetch(const ShardRange& range, std::span<std::byte> to);
  void tend();
  void wake() {
    if (!asleep) return;
    std::lock_guard lock(tend_mutex);
    work_to_do = true;
    tend_now.notify_all();
  }

  StorageOptions options;
  mutable std::mutex mutex;
  std::deque<KnownShard> shards;
  std::map<std::string, std::unique_ptr<WatchedSource>> sources;  // by URL; never removed
  std::map<std::string, uint32_t> folder_numbers;
  std::deque<Folder> folders;
  std::vector<StorageEvent> events;
  std::shared_ptr<ShardCache> cache;
  std::shared_ptr<ReadAhead> ahead;
  IoPool readers, fetchers;
  std::atomic<int> factor = 1;
  bool cache_in_trouble = false;

  std::mutex tend_mutex;
  std::condition_variable tend_now;
  std::atomic<bool> asleep = false;
  bool work_to_do = false, stop = false;
  std::jthread tender;
  struct Probe {
    std::shared_ptr<IoPool::Job> job;
    Clock::time_point begin;
  };
  std::map<WatchedSource*, Probe> probes;  // of the tender alone
};

WatchedSource* Storage::Impl::source(const std::string& url) {
  auto& entry = sources[url];
  if (!entry) {
    try {
      entry = std::make_unique<WatchedSource>(options.open ? options.open(url) : open_source(url, options.nvme),
                                              options.policy, options.read_deadline_s);
    } catch (...) {
      sources.erase(url);
      throw;
    }
  }
  return entry.get();
}

uint32_t Storage::Impl::folder(const std::string& url) {
  if (const auto at = folder_numbers.find(url); at != folder_numbers.end()) return at->second;
  Folder entry;
  entry.own = source(url);
  for (size_t m = 0; m < std::size(kModalities); ++m) {
    for (const char* key : {kModalities[m], "any"}) {
      const auto at = options.sources.find(key);
      if (at == options.sources.end()) continue;
      for (const std::string& other : at->second) {
        WatchedSource* found = source(other);
        if (std::find(entry.routes[m].begin(), entry.routes[m].end(), found) == entry.routes[m].end())
          entry.routes[m].push_back(found);
      }
    }
    if (std::find(entry.routes[m].begin(), entry.routes[m].end(), entry.own) == entry.routes[m].end())
      entry.routes[m].push_back(entry.own);
  }
  folders.push_back(entry);
  return folder_numbers[url] = static_cast<uint32_t>(folders.size() - 1);
}

// Paths in the order in which they are tried: those that are not slow first.
std::vector<WatchedSource*> Storage::Impl::route(const KnownShard& shard, uint8_t modality) const {
  std::vector<WatchedSource*> route;
  {
    std::lock_guard lock(mutex);
    route = folders[shard.folder].routes[place_of_modality(modality)];
  }
  if (route.size() > 1)
    std::stable_partition(route.begin(), route.end(), [](WatchedSource* s) { return !s->decision().avoid; });
  return route;
}

// Whether another folder's file of this name really is the same shard.
bool Storage::Impl::usable(WatchedSource& source, const KnownShard& shard, const WatchedSource* own) const {
  if (&source == own) return true;
  return source.fits(shard.file, [&] {
    std::string why;
    try {
      if (source.source().size(shard.file) == shard.bytes) {
        constexpr uint64_t kStretch = 16384;  // as fingerprint_tar()
        Hasher hasher;
        hasher.update(&shard.bytes, sizeof shard.bytes);
        std::vector<std::byte> buffer(kStretch);
        const uint64_t size = shard.bytes;
        for (uint64_t at : {uint64_t{0}, size > kStretch ? (size - kStretch) / 2 : 0, size > kStretch ? size - kStretch : 0}) {
          const std::span part(buffer.data(), std::min(kStretch, size - at));
          source.read(shard.file, at, part);
          hasher.update(part.data(), part.size());
        }
        if (hasher.digest() == shard.fingerprint) return true;
        why = "its content is another";
      } else {
        why = "its size is another";
      }
    } catch (const Error& error) {
      why = error.what();
    }
    if (log_allowed("unfit " + source.source().name()))
      log_warn("{} is not read from {}: {}", shard.file, source.source().name(), why);
    return false;
  });
}

std::vector<std::byte> Storage::Impl::read(const ShardRange& range) {
  if (range.size == 0) return {};
  const KnownShard known = shard(range.shard);
  const WatchedSource* own;
  {
    std::lock_guard lock(mutex);
    own = folders[known.folder].own;
  }
  struct Try {
    WatchedSource* source;
    std::shared_ptr<IoPool::Job> job;
    std::shared_ptr<std::vector<std::byte>> bytes;
    Clock::time_point deadline;
  };
  std::optional<Error> failure;
  std::vector<std::byte> out;
  auto from_ahead = [&](double wait_s) {
    out.resize(range.size);
    return ahead->take(range, out, Clock::now() + seconds(wait_s));
  };
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const std::vector<WatchedSource*> paths = route(known, range.modality);
    const SourceDecision first = paths.front()->decision();
    if (first.cache_first) {
      if (from_ahead(first.avoid ? 2 * options.policy.late_s : options.latency_limit_s)) {
        paths.front()->count(WatchedSource::kCached);
        return out;
      }
      if (first.avoid) paths.front()->count(WatchedSource::kMissed);
    }
    std::vector<Try> tries;
    auto leave_all = [&] {
      for (const Try& one : tries) readers.leave(one.job);
    };
    for (WatchedSource* path : paths) {
      out.resize(range.size);
      const std::optional<bool> fits = path == own ? true : path->known_to_fit(known.file);
      if (fits == false) continue;
      if (fits == true && path->try_read(known.file, range.offset, out)) {
        leave_all();
        ahead->was_read(range);
        return out;
      }
      Try one{path, nullptr, std::make_shared<std::vector<std::byte>>(range.size), {}};
      // One that hangs already is given a moment, no more: others have waited for it.
      const double patience = path->decision().state == SourceState::kHung ? options.read_deadline_s / 10 : options.read_deadline_s;
      one.deadline = Clock::now() + seconds(patience);
      try {
        one.job = readers.start([self = shared_from_this(), path, own, known, range, bytes = one.bytes] {
          if (!self->usable(*path, known, own))
            throw Error("another path does not have the shard", path->source().name() + ": " + known.file);
          path->read(known.file, range.offset, *bytes);
        });
        wake();
        const auto late = std::min(one.deadline, Clock::now() + seconds(options.policy.late_s));
        if (readers.wait_until(*one.job, std::min(late, Clock::now() + seconds(options.latency_limit_s))) ||
            (!ahead->has(range) && readers.wait_until(*one.job, late))) {
          leave_all();
          ahead->was_read(range);
          return std::move(*one.bytes);
        }
        path->count(WatchedSource::kElsewhere);
      } catch (const Error& error) {
        failure = error;
        path->source().forget(known.file);
        path->count(WatchedSource::kElsewhere);
        continue;
      }
      tries.push_back(one);
      if (from_ahead(0)) {
        leave_all();
        return out;
      }
    }
    // All paths are late: whichever comes, by its deadline.
    for (size_t i = 0; i < tries.size(); ++i) {
      try {
        if (!readers.wait_until(*tries[i].job, tries[i].deadline)) continue;
        for (size_t k = 0; k < tries.size(); ++k)
          if (k != i) readers.leave(tries[k].job);
        ahead->was_read(range);
        return std::move(*tries[i].bytes);
      } catch (const Error& error) {
        failure = error;
        tries[i].source->source().forget(known.file);
      }
    }
    leave_all();
    if (from_ahead(0)) return out;
    if (!tries.empty())
      throw Error("a read did not come back",
                  tries.front().source->source().name() + "/" + known.file + " within " +
                      std::to_string(static_cast<int>(1e3 * options.read_deadline_s)) + " ms (mdp.read_deadline_ms)",
                  "is the storage gone? a cache (mdp.cache) or a second path (mdp.sources) would have helped");
    // A network file system may fail for a moment.
    if (attempt + 1 < kTries) std::this_thread::sleep_for(std::chrono::milliseconds(20 << (2 * attempt)));
  }
  throw *failure;
}

// For read-ahead, on one of its threads: whichever path gives it.
void Storage::Impl::fetch(const ShardRange& range, std::span<std::byte> to) {
  const KnownShard known = shard(range.shard);
  const WatchedSource* own;
  {
    std::lock_guard lock(mutex);
    own = folders[known.folder].own;
  }
  std::optional<Error> failure;
  for (WatchedSource* path : route(known, range.modality)) {
    try {
      if (!usable(*path, known, own)) continue;
      path->read(known.file, range.offset, to);
      return;
    } catch (const Error& error) {
      failure = error;
      path->source().forget(known.file);
    }
  }
  throw failure ? *failure : Error("no path has the shard", known.file);
}

// The storage's own thread: judges sources, probes them, keeps read-ahead going. Sleeps for a second at a time while all
// is well and nothing is to be fetched.
void Storage::Impl::tend() {
  pthread_setname_np(pthread_self(), "mso-storage");
  for (;;) {
    bool quiet = true;
    int fetches = cache && options.cache_always ? kFetchesWhenHealthy : 0, most = 1;
    uint64_t memory = options.read_ahead_bytes;
    std::vector<WatchedSource*> all;
    {
      std::lock_guard lock(mutex);
      for (const auto& [url, source] : sources) all.push_back(source.get());
    }
    for (WatchedSource* source : all) {
      const double now = storage_clock();
      if (std::optional<StorageEvent> event = source->judge(now)) {
        event->time = unix_time();
        std::lock_guard lock(mutex);
        events.push_back(std::move(*event));
      }
      const SourceDecision decision = source->decision();
      if (decision.fill_ahead) {
        fetches = kFetchesWhenSlow;
        memory = options.read_ahead_bytes;
      } else if (decision.far && !cache && fetches == 0) {
        fetches = kFetchesWhenFar;
        memory = std::min(memory, kMemoryWhenFar);
      }
      most = std::max(most, decision.prefetch_factor);
      if (decision.probe) {
        Probe& probe = probes[source];
        std::string shard;
        uint64_t offset = 0;
        const bool open = probe.job && !fetchers.wait_until(*probe.job, Clock::now());
        if (open && Clock::now() - probe.begin > seconds(4 * options.read_deadline_s)) fetchers.leave(probe.job);
        if ((!open || Clock::now() - probe.begin > seconds(4 * options.read_deadline_s)) && source->probe_place(&shard, &offset)) {
          probe.begin = Clock::now();
          try {
            probe.job = fetchers.start([self = shared_from_this(), source, shard, offset] {
              std::byte bytes[4096];
              try {
                source->read(shard, offset, bytes);
              } catch (const Error&) {  // counted by the source
              }
            });
          } catch (const Error&) {
          }
        }
      }
      quiet = quiet && source->quiet();
    }
    // Everything hangs: threads would only get stuck.
    if (std::all_of(all.begin(), all.end(), [](WatchedSource* s) { return s->decision().state == SourceState::kHung; })) fetches = 0;
    factor = most;
    ahead->pump(fetchers, fetches, memory);
    if (cache) {
      const std::string trouble = cache->trouble();
      if (trouble.empty() == cache_in_trouble) {
        cache_in_trouble = !trouble.empty();
        std::lock_guard lock(mutex);
        events.push_back({unix_time(), cache_in_trouble ? "cache_degraded" : "cache_recovered",
                          cache_in_trouble ? trouble : "the cache of shards takes chunks again"});
      }
    }
    std::unique_lock lock(tend_mutex);
    if (stop) return;
    asleep = true;
    if (quiet && !ahead->busy())
      tend_now.wait_for(lock, std::chrono::seconds(1), [&] { return stop || work_to_do; });
    else
      tend_now.wait_for(lock, std::chrono::milliseconds(100), [&] { return stop || work_to_do; });
    asleep = false;
    work_to_do = false;
    if (stop) return;
  }
}

Storage::Storage(StorageOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {
  Impl& impl = *impl_;
  check_storage_options(impl.options);
  if (!impl.options.cache_path.empty())
    impl.cache = std::make_shared<ShardCache>(impl.options.cache_path, impl.options.cache_bytes);
  const std::weak_ptr<Impl> weak = impl_;
  ReadAhead::Work work;
  work.shard = [weak](uint32_t number) {
    const auto self = weak.lock();
    if (!self) return AheadShard{};
    const KnownShard known = self->shard(number);
    return AheadShard{known.cache_id, known.bytes};
  };
  work.fetch = [weak](const ShardRange& range, std::span<std::byte> to) {
    const auto self = weak.lock();
    if (!self) throw Error("the storage is closed", "");
    self->fetch(range, to);
  };
  work.ended = [weak] {
    if (const auto self = weak.lock()) {
      std::lock_guard lock(self->tend_mutex);
      self->work_to_do = true;
      self->tend_now.notify_all();
    }
  };
  impl.ahead = std::make_shared<ReadAhead>(impl.cache, impl.options.read_deadline_s, std::move(work));
  impl.tender = std::jthread([shared = impl_] { shared->tend(); });
}

Storage::~Storage() {
  {
    std::lock_guard lock(impl_->tend_mutex);
    impl_->stop = true;
    impl_->tend_now.notify_all();
  }
  // What it asks for the ids of coming steps may hold the data set for a moment, and with it the last share of this.
  if (impl_->tender.get_id() == std::this_thread::get_id())
    impl_->tender.detach();
  else
    impl_->tender.join();
}

const StorageOptions& Storage::options() const { return impl_->options; }

uint32_t Storage::add_shard(const ShardFacts& facts) {
  std::lock_guard lock(impl_->mutex);
  KnownShard shard;
  shard.folder = impl_->folder(facts.folder_url);
  shard.file = facts.file;
  shard.bytes = facts.bytes;
  shard.fingerprint = facts.fingerprint;
  const uint64_t identity[] = {facts.bytes, facts.fingerprint, facts.index_checksum};
  shard.cache_id = hash64(identity, sizeof identity);
  impl_->shards.push_back(std::move(shard));
  return static_cast<uint32_t>(impl_->shards.size() - 1);
}

std::vector<std::byte> Storage::read(const ShardRange& range) { return impl_->read(range); }

void Storage::follow(std::function<std::vector<ShardRange>(uint64_t step)> upcoming) {
  impl_->ahead->follow(std::move(upcoming));
  impl_->wake();
}

void Storage::at_step(uint64_t step) {
  impl_->ahead->at_step(step);
  impl_->wake();
}

int Storage::prefetch_factor() const { return impl_->factor; }

StorageStatus Storage::status() const {
  StorageStatus status;
  {
    const double now = storage_clock();
    std::lock_guard lock(impl_->mutex);
    for (const auto& [url, source] : impl_->sources) status.sources.push_back(source->status(now));
  }
  if (impl_->cache) {
    status.cache = impl_->cache->counters();
    status.cache_bytes = impl_->cache->bytes();
    status.cache_trouble = impl_->cache->trouble();
  }
  status.read_ahead = impl_->ahead->fetched();
  status.left_behind = impl_->readers.left_behind() + impl_->fetchers.left_behind();
  status.stuck = impl_->readers.stuck() + impl_->fetchers.stuck();
  status.prefetch_factor = impl_->factor;
  return status;
}

std::vector<StorageEvent> Storage::take_events() {
  std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->events, {});
}

}  // namespace mso
