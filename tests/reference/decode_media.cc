// What our video and sound decoders and feature extractors make of files, for the reference tests and
// benchmarks.
//   decode_media serve    reads commands from standard input, one a line:
//       sample RULE FPS NUM MIN MAX TOTAL RATE   indices (int64); RULE: qwen2_vl, qwen_vl_utils, uniform or
//       all probe FILE                               JSON video RULE FPS NUM TOLERATE THREADS FILE width,
//       height, frames (int64), total (int64), rate (double),
//                                                indices (int64), timestamps (double), then RGB
//       audio RATE TOLERATE FILE                 rate (int64), then float32
//       mel BINS FILE                            float32 [BINS, 3000] of raw float32 at 16 kHz
//       processor FOLDER FILE                    of raw float32 at 16 kHz: tokens, sum of the mask (int64),
//       then
//                                                "input_features"
//     and answers on standard output: length in bytes (int64), then the bytes; for an Error −1, and its
//     message so.
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "io/audio.h"
#include "io/mel.h"
#include "io/processor.h"
#include "io/video.h"

namespace {

void write(const void* data, size_t size) {
  if (std::fwrite(data, 1, size, stdout) != size) throw mso::system_error("cannot write", "standard output");
}

void answer(const std::string& bytes) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  write(&size, sizeof size);
  write(bytes.data(), bytes.size());
  std::fflush(stdout);
}

template <typename T>
void append(std::string* out, const T* data, size_t count) {
  out->append(reinterpret_cast<const char*>(data), count * sizeof(T));
}

mso::VideoSampling::Rule rule_of(const std::string& word) {
  if (word == "qwen2_vl") return mso::VideoSampling::Rule::kQwen2Vl;
  if (word == "qwen_vl_utils") return mso::VideoSampling::Rule::kQwenVlUtils;
  if (word == "uniform") return mso::VideoSampling::Rule::kUniform;
  if (word == "all") return mso::VideoSampling::Rule::kAll;
  throw mso::Error("unknown rule", word);
}

std::string run(const std::string& line) {
  std::istringstream in(line);
  std::string command, rule, out;
  in >> command;
  mso::VideoOptions options;
  if (command == "sample" || command == "video") {
    in >> rule >> options.sampling.fps >> options.sampling.num_frames;
    options.sampling.rule = rule_of(rule);
  }
  if (command == "sample") {
    int64_t total;
    double rate;
    in >> options.sampling.min_frames >> options.sampling.max_frames >> total >> rate;
    const auto indices = mso::sample_frames(options.sampling, total, rate);
    append(&out, indices.data(), indices.size());
    return out;
  }
  mso::AudioOptions audio;
  int bins = 0;
  if (command == "video") in >> options.tolerate_damage >> options.threads;
  if (command == "audio") in >> audio.sample_rate >> audio.tolerate_damage;
  if (command == "mel") in >> bins;
  std::string path, folder;
  if (command == "processor") in >> folder;
  std::getline(in >> std::ws, path);
  const std::string file = mso::read_file(path);
  const auto bytes = std::as_bytes(std::span(file));
  if (command == "probe") {
    nlohmann::json j;
    try {
      const mso::VideoInfo v = mso::probe_video(bytes, path, options);
      j["video"] = {{"width", v.width},         {"height", v.height},       {"container", v.container},
                    {"codec", v.codec},         {"duration", v.duration_s}, {"rate", v.frames_per_second},
                    {"frames", v.total_frames}, {"keyframes", v.keyframes}, {"constant", v.constant_rate}};
    } catch (const mso::Error& error) {
      j["video_error"] = error.what();
    }
    try {
      const mso::AudioInfo a = mso::probe_audio(bytes, path, audio);
      j["audio"] = {
          {"rate", a.sample_rate}, {"channels", a.channels}, {"codec", a.codec}, {"duration", a.duration_s}};
    } catch (const mso::Error& error) {
      j["audio_error"] = error.what();
    }
    return j.dump();
  }
  if (command == "video") {
    const mso::VideoClip clip = mso::decode_video(bytes, path, options);
    const int64_t head[4] = {clip.width, clip.height, clip.frames(), clip.total_frames};
    append(&out, head, 4);
    append(&out, &clip.frames_per_second, 1);
    append(&out, clip.frame_indices.data(), clip.frame_indices.size());
    append(&out, clip.timestamps_s.data(), clip.timestamps_s.size());
    append(&out, clip.rgb.data(), clip.rgb.size());
    return out;
  }
  if (command == "audio") {
    const mso::AudioClip clip = mso::decode_audio(bytes, path, audio);
    const int64_t rate = clip.sample_rate;
    append(&out, &rate, 1);
    append(&out, clip.samples.data(), clip.samples.size());
    return out;
  }
  if (command == "mel") {
    mso::MelConfig config;
    config.feature_size = bins;
    const mso::LogMel mel(config);
    std::vector<float> samples(file.size() / sizeof(float));
    std::memcpy(samples.data(), file.data(), samples.size() * sizeof(float));
    std::vector<float> features(size_t(bins) * config.frames());
    mel.compute(samples, features.data());
    append(&out, features.data(), features.size());
    return out;
  }
  if (command == "processor") {
    mso::AudioClip clip{16000, std::vector<float>(file.size() / sizeof(float))};
    std::memcpy(clip.samples.data(), file.data(), clip.samples.size() * sizeof(float));
    const mso::ProcessedMedia media = mso::load_processor(folder)->audio(clip);
    int64_t head[2] = {media.feature_count(), -1};
    for (const char* name : {"attention_mask", "feature_attention_mask"})
      if (const auto mask = media.tensors.find(name); mask != media.tensors.end())
        head[1] = std::accumulate(mask->second.data<int32_t>(),
                                  mask->second.data<int32_t>() + mask->second.count(), int64_t{0});
    append(&out, head, 2);
    const mso::HostTensor& features = media.tensors.at("input_features");
    append(&out, features.data<float>(), features.count());
    return out;
  }
  throw mso::Error("unknown command", command);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2 || std::strcmp(argv[1], "serve") != 0) {
    std::cerr << "usage: decode_media serve\n";
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    try {
      answer(run(line));
    } catch (const mso::Error& error) {
      const int64_t failed = -1;
      write(&failed, sizeof failed);
      answer(error.what());
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "decode_media: " << error.what() << '\n';
  return 1;
}
