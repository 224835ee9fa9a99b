// The spread of decode latency of one decoder thread, placed as the loader places its own (MSO_CPUS_IMAGE, MSO_DECODER_PRIORITY …). By hand,
// through contrib/bench/decode_jitter.py.
//
// usage: decode_jitter FOLDER SECONDS
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/error.h"
#include "io/dataset.h"
#include "io/picture_decoder.h"
#include "io/sample_assembler.h"
#include "io/tokenizer.h"
#include "node/thread_place.h"

int main(int argc, char** argv) try {
  using namespace mso;
  using Clock = std::chrono::steady_clock;
  if (argc != 3) {
    std::cerr << "usage: decode_jitter FOLDER SECONDS\n";
    return 2;
  }
  const double limit_s = std::strtod(argv[2], nullptr);
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer("bytes");
  AssemblerOptions options;
  options.image_token = *tokenizer->token_id("<image>");
  const SampleAssembler assembler(Dataset::open({argv[1]}), tokenizer, make_picture_decoder(clip_image_processor(336), 576, true), options);
  std::vector<double> ms;
  std::string problem;
  std::thread([&] {
    problem = place_this_thread(ThreadClass::kImage);
    BufferPool pool(uint64_t{1} << 28);
    const auto start = Clock::now();
    // The first pass warms caches. Then whole passes, so that every run decodes the same mix.
    for (int pass = 0;; ++pass) {
      for (uint64_t id = 0; id < assembler.dataset().size(); ++id) {
        const auto begin = Clock::now();
        AssembledSample sample = assembler.assemble(id, &pool);
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        sample.give_back(pool);
        if (pass > 0) ms.push_back(1e3 * seconds);
      }
      if (pass > 0 && std::chrono::duration<double>(Clock::now() - start).count() > limit_s) break;
    }
  }).join();
  double sum = 0, squares = 0;
  for (double x : ms) sum += x;
  const double mean = sum / static_cast<double>(ms.size());
  for (double x : ms) squares += (x - mean) * (x - mean);
  std::sort(ms.begin(), ms.end());
  std::cout << nlohmann::ordered_json{{"decodes", ms.size()},
                                      {"mean_ms", mean},
                                      {"deviation_ms", std::sqrt(squares / static_cast<double>(ms.size()))},
                                      {"median_ms", ms[ms.size() / 2]},
                                      {"p99_ms", ms[ms.size() * 99 / 100]},
                                      {"most_ms", ms.back()},
                                      {"problem", problem}}
                   .dump()
            << "\n";
  return 0;
} catch (const mso::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
