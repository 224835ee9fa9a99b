#include "spank/confirmation.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

namespace mso {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kBacklog = 4096;
constexpr size_t kMaxLine = 256, kMaxName = 128;
// Peers that have connected and said nothing: for how long, how many of them at a time, how many in all, and how
// many connections are taken between two looks at the others.
constexpr double kPatienceS = 0.5;
constexpr size_t kMaxPeers = 256, kMaxStrangers = 100000;
constexpr int kAtOnce = 64;

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}
int left_ms(Clock::time_point end) {
  return static_cast<int>(std::max<int64_t>(
      0, std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count()));
}

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Both families on one socket where the machine has IPv6.
FileDescriptor bind_port(uint16_t port) {
  FileDescriptor fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.valid()) {
    const int both = 0;
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both);
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        ::listen(fd.get(), kBacklog) == 0)
      return fd;
  }
  fd = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (fd.valid() && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(fd.get(), kBacklog) == 0)
    return fd;
  return FileDescriptor();
}

bool parse_confirmation(std::string_view line, std::string_view secret, NodeOfStep& node) {
  // "SECRET JOB INDEX NAME\n"
  if (!line.ends_with('\n') || line.size() <= secret.size() || line.substr(0, secret.size()) != secret ||
      line[secret.size()] != ' ')
    return false;
  line.remove_suffix(1);
  line.remove_prefix(secret.size() + 1);
  const size_t first = line.find(' '),
               second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return false;
  node.name = std::string(line.substr(second + 1));
  return parse_number(line.substr(0, first), node.job) &&
         parse_number(line.substr(first + 1, second - first - 1), node.node_index);
}

// Who has connected and not said all yet.
struct Peer {
  FileDescriptor socket;
  std::string line;
  Clock::time_point end;

  // Reads what is there. True: there will be no more.
  bool receive() {
    while (line.size() < kMaxLine && !line.ends_with('\n')) {
      char buffer[kMaxLine];
      const ssize_t n = ::recv(socket.get(), buffer, sizeof buffer - line.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n == 0 || errno != EAGAIN;
      line.append(buffer, static_cast<size_t>(n));
    }
    return true;
  }
};

}  // namespace

std::optional<ConfirmationBox> ConfirmationBox::open(std::pair<uint16_t, uint16_t> ports) {
  ConfirmationBox box;
  unsigned char random[16];
  if (::getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) return std::nullopt;
  for (unsigned char byte : random) {
    box.secret_ += "0123456789abcdef"[byte >> 4];
    box.secret_ += "0123456789abcdef"[byte & 15];
  }
  // From a random place in the range, so that many srun on one machine do not try the same ports.
  const uint32_t count = ports.second >= ports.first ? ports.second - ports.first + 1u : 1u;
  const uint32_t first = (random[0] << 8 | random[1]) % count;
  for (uint32_t i = 0; i < count && i < 1000 && !box.socket_.valid(); ++i)
    box.socket_ = bind_port(static_cast<uint16_t>(ports.first + (first + i) % count));
  if (!box.socket_.valid()) return std::nullopt;
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (::getsockname(box.socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return std::nullopt;
  box.port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                                  : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  return box;
}

std::string ConfirmationBox::ticket() const {
  return std::to_string(port_) + ":" + secret_;
}

Confirmations ConfirmationBox::collect(size_t expected, double deadline_s) {
  Confirmations found;
  std::vector<Peer> peers;  // oldest first
  const auto end = after(deadline_s);
  const auto settle = [&](Peer& peer) {
    NodeOfStep node;
    if (parse_confirmation(peer.line, secret_, node))
      found.nodes.insert(node);
    else
      ++found.strangers;
    peer.socket.reset();
  };
  while (found.nodes.size() < expected && left_ms(end) > 0 && found.strangers < kMaxStrangers) {
    std::vector<pollfd> wanted = {{socket_.get(), POLLIN, 0}};
    int wait = left_ms(end);
    for (const Peer& peer : peers) {
      wanted.push_back({peer.socket.get(), POLLIN, 0});
      wait = std::min(wait, left_ms(peer.end));
    }
    const int ready = ::poll(wanted.data(), wanted.size(), wait);
    if (ready < 0 && errno != EINTR) break;
    for (size_t i = 0; i < peers.size(); ++i)
      if ((ready > 0 && wanted[i + 1].revents && peers[i].receive()) || left_ms(peers[i].end) == 0) settle(peers[i]);
    std::erase_if(peers, [](const Peer& peer) { return !peer.socket.valid(); });
    if (ready <= 0 || !wanted[0].revents) continue;
    // A good peer has sent its line long ago: it is read at once, and waits for none of the others.
    for (int i = 0; i < kAtOnce && found.nodes.size() < expected; ++i) {
      Peer peer;
      peer.socket = FileDescriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!peer.socket.valid()) {
        // Out of descriptors: those of peers that say nothing are needed.
        if ((errno == EMFILE || errno == ENFILE) && !peers.empty()) {
          settle(peers.front());
          peers.erase(peers.begin());
        }
        break;
      }
      peer.end = std::min(end, after(kPatienceS));
      if (peer.receive()) {
        settle(peer);
        continue;
      }
      if (peers.size() >= kMaxPeers) {
        settle(peers.front());
        peers.erase(peers.begin());
      }
      peers.push_back(std::move(peer));
    }
  }
  for (Peer& peer : peers)
    if (found.nodes.size() < expected) settle(peer);
  return found;
}

bool send_confirmation(const std::string& address, std::string_view ticket, const NodeOfStep& node,
                       double deadline_s) {
  const size_t colon = ticket.find(':');
  uint16_t port = 0;
  if (colon == std::string_view::npos || ticket.size() > 64 || !parse_number(ticket.substr(0, colon), port))
    return false;
  sockaddr_storage target = {};
  socklen_t size = 0;
  auto* four = reinterpret_cast<sockaddr_in*>(&target);
  auto* six = reinterpret_cast<sockaddr_in6*>(&target);
  if (::inet_pton(AF_INET, address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    size = sizeof *four;
  } else if (::inet_pton(AF_INET6, address.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    size = sizeof *six;
  } else {
    return false;
  }
  const auto end = after(deadline_s);
  const FileDescriptor fd(::socket(target.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return false;
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&target), size) != 0) {
    if (errno != EINPROGRESS) return false;
    pollfd wanted = {fd.get(), POLLOUT, 0};
    int ready;
    while ((ready = ::poll(&wanted, 1, left_ms(end))) < 0 && errno == EINTR) {
    }
    int error = 0;
    socklen_t length = sizeof error;
    if (ready <= 0 || ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0)
      return false;
  }
  const std::string line = std::string(ticket.substr(colon + 1)) + " " + std::to_string(node.job) + " " +
                           std::to_string(node.node_index) + " " + node.name.substr(0, kMaxName) + "\n";
  return ::send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

std::pair<uint16_t, uint16_t> srun_ports(std::string_view text) {
  std::pair<uint16_t, uint16_t> ports = {0, 0};
  while (!text.empty()) {
    std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = line.substr(0, line.find('#'));
    std::string packed;
    for (char c : line)
      if (c != ' ' && c != '\t' && c != '\r')
        packed += static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    constexpr std::string_view kKey = "srunportrange=";
    if (!packed.starts_with(kKey)) continue;
    const std::string_view value = std::string_view(packed).substr(kKey.size());
    const size_t dash = value.find('-');
    std::pair<uint16_t, uint16_t> found;
    if (dash != std::string_view::npos && parse_number(value.substr(0, dash), found.first) &&
        parse_number(value.substr(dash + 1), found.second) && found.first <= found.second && found.first > 0)
      ports = found;
  }
  return ports;
}

std::vector<std::string> expand_host_list(std::string_view list) {
  constexpr size_t kMaxNames = 100000;
  std::vector<std::string> names;
  size_t begin = 0;
  int depth = 0;
  const auto expand = [&names](std::string_view item) {
    const size_t open = item.find('['), close = item.rfind(']');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open ||
        item.find('[', open + 1) != std::string_view::npos) {
      if (!item.empty()) names.emplace_back(item);
      return;
    }
    std::string_view ranges = item.substr(open + 1, close - open - 1);
    while (!ranges.empty()) {
      const std::string_view range = ranges.substr(0, ranges.find(','));
      ranges.remove_prefix(std::min(ranges.size(), range.size() + 1));
      const size_t dash = range.find('-');
      const std::string_view low = range.substr(0, dash),
                             high = dash == std::string_view::npos ? low : range.substr(dash + 1);
      uint32_t from = 0, to = 0;
      if (!parse_number(low, from) || !parse_number(high, to)) {
        names.emplace_back(item);
        return;
      }
      for (uint64_t i = from; i <= to && names.size() < kMaxNames; ++i) {
        std::string number = std::to_string(i);
        if (number.size() < low.size()) number.insert(0, low.size() - number.size(), '0');
        names.push_back(std::string(item.substr(0, open)) + number + std::string(item.substr(close + 1)));
      }
    }
  };
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c != ',' || depth > 0) continue;
    expand(list.substr(begin, i - begin));
    begin = i + 1;
  }
  return names;
}

}  // namespace mso
