// How long a consumer is idle when one video of each batch is artificially slow: with the loader of training, and with the same
// samples decoded when the step asks for them. By hand, through contrib/bench/idle_time.py.
//
// usage: idle_bench FOLDER STEPS DELAY_MS sleep|burn USE   (USE: share of the time the synchronous consumer is to compute, 0.62)
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/error.h"
#include "io/data_loader.h"
#include "io/dataset.h"
#include "io/media_decoder.h"
#include "io/picture_decoder.h"
#include "io/tokenizer.h"

namespace {

using namespace mso;
using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Keeps one core busy, as a training step does.
void burn(double seconds) {
  const auto begin = Clock::now();
  volatile double x = 1;
  while (since(begin) < seconds)
    for (int i = 0; i < 1000; ++i) x = x * 0.999999 + 1e-6;
}

struct Result {
  double seconds = 0, idle_s = 0;
  uint64_t samples = 0;
  nlohmann::ordered_json json() const {
    return {{"seconds", seconds}, {"idle_s", idle_s}, {"use", (seconds - idle_s) / seconds}, {"samples", samples}};
  }
};

// `load` gets a step's samples and returns their number. The first two steps are not counted.
template <typename Load>
Result consume(uint64_t steps, double compute_s, Load load) {
  Result result;
  auto begin = Clock::now();
  for (uint64_t step = 0; step < steps + 2; ++step) {
    if (step == 2) {
      begin = Clock::now();
      result = {};
    }
    const auto asked = Clock::now();
    result.samples += load(step);
    result.idle_s += since(asked);
    burn(compute_s);
  }
  result.seconds = since(begin);
  return result;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) {
    std::cerr << "usage: idle_bench FOLDER STEPS DELAY_MS sleep|burn USE\n";
    return 2;
  }
  const std::string folder = argv[1], way = argv[4];
  const uint64_t steps = std::strtoull(argv[2], nullptr, 10);
  const double delay_s = std::strtod(argv[3], nullptr) / 1e3, use = std::strtod(argv[5], nullptr);

  const int64_t size = 224, patches = (size / 16) * (size / 16);
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer("bytes");
  AssemblerOptions options;
  options.text_template = "<video><audio><image>{caption}";
  options.image_token = *tokenizer->token_id("<image>");
  options.bytes_per_token = 1;
  PerModality<MediaDecoder> others;
  others[Modality::kVideo] = make_video_decoder(clip_image_processor(size), 4, patches / 4, *tokenizer->token_id("<video>"));
  others[Modality::kAudio] = make_audio_decoder(80, 3000, 750, *tokenizer->token_id("<audio>"));
  others[Modality::kVideo].decode = [decode = others[Modality::kVideo].decode, delay_s, way](auto file, const auto& name, BufferPool* pool) {
    if (way == "burn")
      burn(delay_s);
    else
      std::this_thread::sleep_for(std::chrono::duration<double>(delay_s));
    return decode(file, name, pool);
  };
  const auto assembler = std::make_shared<const SampleAssembler>(
      Dataset::open({folder}), tokenizer, make_picture_decoder(clip_image_processor(size), patches, false), options, others);

  DataLoaderOptions loading;  // as training's defaults
  loading.recipe[Modality::kText] = 4;
  loading.recipe[Modality::kImage] = 2;
  loading.recipe[Modality::kVideo] = 1;
  loading.batch_samples = 7;
  loading.threads = 1;
  loading.prefetch_depth[Modality::kText] = 16;
  loading.prefetch_depth[Modality::kImage] = 8;
  loading.prefetch_depth[Modality::kVideo] = 4;
  loading.defer_after_s = 2;
  DataLoader loader(assembler, loading);

  // The same samples, one after the other, when they are asked for.
  BufferPool pool(uint64_t{1} << 30);
  auto synchronous = [&](uint64_t step) {
    const GlobalBatch batch = loader.global_batch(step);
    std::vector<AssembledSample> samples;
    std::vector<const AssembledSample*> pointers;
    for (uint64_t id : batch.ids) samples.push_back(assembler->assemble(id, &pool));
    for (const AssembledSample& sample : samples) pointers.push_back(&sample);
    MicroBatch joined = join_samples(pointers, batch.ids, &pool);
    for (auto& [name, tensor] : joined.media) pool.give_back(std::move(tensor));
    for (AssembledSample& sample : samples) sample.give_back(pool);
    return static_cast<uint64_t>(batch.ids.size());
  };
  const Result load = consume(std::min<uint64_t>(steps, 10), 0, synchronous);
  const double load_s = load.seconds / static_cast<double>(std::min<uint64_t>(steps, 10));
  const double compute_s = load_s * use / (1 - use);

  const Result sync = consume(steps, compute_s, synchronous);
  loader.start(0);
  const Result async = consume(steps, compute_s, [&](uint64_t) { return loader.next().samples; });
  std::cout << nlohmann::ordered_json{{"compute_s", compute_s},
                                      {"synchronous", sync.json()},
                                      {"asynchronous", async.json()},
                                      {"deferred_videos", loader.counters().of[Modality::kVideo].deferred},
                                      {"idle_ratio", async.idle_s / sync.idle_s}}
                   .dump()
            << "\n";
  return 0;
} catch (const mso::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
