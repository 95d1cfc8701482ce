// Starts a program once for many runs: what its libraries do before main() (LibTorch registers its operators, a quarter of a
// second) is done once, and every run is a fork of that.
//
//   LD_PRELOAD=this SOCKET=… START_ONCE=… program     waits at the Unix socket SOCKET instead of entering main()
//   start_once SOCKET [argument …]        a run: main() there, with the arguments, environment, directory, standard
//                                         streams, processors and umask of this process, which ends as the run does and
//                                         hands on the signals that ask for an end
//
// A run that starts the program again (ranks: /proc/self/exe) starts the program START_ONCE instead, and so another run. A run
// whose client is gone is killed. What libraries read of the environment before main() is the server's.
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern char** environ;

namespace {

sockaddr_un address_of(const char* path) {
  sockaddr_un out{};
  out.sun_family = AF_UNIX;
  std::strncpy(out.sun_path, path, sizeof(out.sun_path) - 1);
  return out;
}

bool send_all(int to, const void* data, std::size_t size) {
  for (const auto* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t sent = ::send(to, at, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}
bool receive_all(int from, void* data, std::size_t size) {
  for (auto* at = static_cast<char*>(data); size > 0;) {
    const ssize_t got = ::recv(from, at, size, 0);
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

void put(std::string& out, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(text);
}
void put_all(std::string& out, char** texts) {
  std::uint32_t count = 0;
  while (texts[count] != nullptr) ++count;
  out.append(reinterpret_cast<const char*>(&count), sizeof(count));
  for (char** text = texts; *text != nullptr; ++text) put(out, *text);
}
std::uint32_t number(const char*& at) {
  std::uint32_t out = 0;
  std::memcpy(&out, at, sizeof(out));
  at += sizeof(out);
  return out;
}
std::string text(const char*& at) {
  const std::uint32_t size = number(at);
  std::string out(at, size);
  at += size;
  return out;
}
std::vector<char*> texts(const char*& at) {
  std::vector<char*> out;
  for (std::uint32_t left = number(at); left > 0; --left) out.push_back(::strdup(text(at).c_str()));
  out.push_back(nullptr);
  return out;
}

// --- the run's side

int join(const char* path, char** arguments) {
  const int server = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un where = address_of(path);
  if (::connect(server, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0) {
    std::perror(path);
    return 125;
  }
  std::string request;
  char* const folder = ::get_current_dir_name();
  put(request, folder != nullptr ? folder : "/");
  const mode_t mask = ::umask(0);
  request.append(reinterpret_cast<const char*>(&mask), sizeof(mask));
  cpu_set_t processors;
  CPU_ZERO(&processors);
  ::sched_getaffinity(0, sizeof(processors), &processors);
  request.append(reinterpret_cast<const char*>(&processors), sizeof(processors));
  put_all(request, arguments);
  put_all(request, environ);
  auto size = static_cast<std::uint32_t>(request.size());
  iovec bytes{&size, sizeof(size)};
  int streams[3] = {0, 1, 2};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(streams))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(streams));
  std::memcpy(CMSG_DATA(header), streams, sizeof(streams));
  sigset_t asked;
  sigemptyset(&asked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&asked, signal);
  ::sigprocmask(SIG_BLOCK, &asked, nullptr);
  pollfd ends[2] = {{server, POLLIN, 0}, {::signalfd(-1, &asked, SFD_CLOEXEC), POLLIN, 0}};
  int status = 0;
  bool good =
      ::sendmsg(server, &message, MSG_NOSIGNAL) == sizeof(size) && send_all(server, request.data(), request.size());
  while (good && ends[0].revents == 0) {
    if (::poll(ends, 2, -1) < 0 || ends[1].revents == 0) continue;
    signalfd_siginfo told{};
    const auto number = static_cast<char>(::read(ends[1].fd, &told, sizeof(told)) > 0 ? told.ssi_signo : 0);
    good = number != 0 && send_all(server, &number, 1);
  }
  ::sigprocmask(SIG_UNBLOCK, &asked, nullptr);
  if (!good || !receive_all(server, &status, sizeof(status))) {
    std::fputs("start_once: the server of runs has ended\n", stderr);
    return 125;
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  ::signal(WTERMSIG(status), SIG_DFL);
  ::raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

// --- the server's side

using Main = int (*)(int, char**, char**);
Main program = nullptr;
std::string door_path, client_program;  // of the server, and of its runs

int run(int client, char* name) {
  std::uint32_t size = 0;
  iovec bytes{&size, sizeof(size)};
  int streams[3] = {-1, -1, -1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(streams))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (::recvmsg(client, &message, 0) != sizeof(size) || CMSG_FIRSTHDR(&message) == nullptr) return 125;
  std::memcpy(streams, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(streams));
  std::string request(size, '\0');
  if (!receive_all(client, request.data(), size)) return 125;
  const char* at = request.data();
  const std::string folder = text(at);
  mode_t mask = 0;
  std::memcpy(&mask, at, sizeof(mask));
  at += sizeof(mask);
  cpu_set_t processors;
  std::memcpy(&processors, at, sizeof(processors));
  at += sizeof(processors);
  std::vector<char*> arguments = texts(at);
  arguments.insert(arguments.begin(), name);
  std::vector<char*> variables = texts(at);

  const pid_t watcher = ::getpid(), child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != watcher) ::_exit(125);
    ::close(client);
    for (int i = 0; i < 3; ++i) ::dup2(streams[i], i);
    for (const int stream : streams)
      if (stream > 2) ::close(stream);
    ::umask(mask);
    ::sched_setaffinity(0, sizeof(processors), &processors);
    ::clearenv();
    for (std::size_t i = 0; variables[i] != nullptr; ++i) ::putenv(variables[i]);
    if (::chdir(folder.c_str()) != 0) ::_exit(125);
    std::exit(program(static_cast<int>(arguments.size()) - 1, arguments.data(), environ));
  }
  for (const int stream : streams) ::close(stream);
  pollfd ends[2] = {{static_cast<int>(::syscall(SYS_pidfd_open, child, 0)), POLLIN, 0}, {client, POLLIN, 0}};
  while (ends[0].revents == 0) {
    if (::poll(ends, 2, -1) < 0 || ends[0].revents != 0) continue;
    char number = SIGKILL;  // the client is gone
    if (::recv(client, &number, 1, 0) <= 0) ends[0].revents = POLLIN;
    ::kill(child, number);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  (void)send_all(client, &status, sizeof(status));
  return 0;
}

int serve(int, char** arguments, char**) {
  const char* const path = std::getenv("SOCKET");
  door_path = path;
  if (const char* const client = std::getenv("START_ONCE")) client_program = client;
  // The path appears when it can be called, not between bind() and listen().
  const std::string draft = std::string(path) + "~";
  const sockaddr_un where = address_of(draft.c_str());
  const int door = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ::unsetenv("LD_PRELOAD");
  ::signal(SIGCHLD, SIG_IGN);
  if (::bind(door, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0 || ::listen(door, 64) != 0 ||
      ::rename(draft.c_str(), path) != 0) {
    std::perror(path);
    return 125;
  }
  for (;;) {
    const int client = ::accept4(door, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    if (::fork() == 0) {
      ::signal(SIGCHLD, SIG_DFL);
      ::close(door);
      ::_exit(run(client, arguments[0]));
    }
    ::close(client);
  }
}

}  // namespace

extern "C" int __libc_start_main(Main entered, int count, char** arguments, void (*init)(), void (*fini)(),
                                 void (*end)(), void* stack) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  static const auto start = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  program = entered;
  return start(std::getenv("SOCKET") != nullptr ? serve : entered, count, arguments, init, fini, end, stack);
}

// A run that starts the program anew becomes the client of another run.
extern "C" int execve(const char* path, char* const arguments[], char* const variables[]) noexcept {
  using Execute = int (*)(const char*, char* const[], char* const[]);
  static const auto execute = reinterpret_cast<Execute>(::dlsym(RTLD_NEXT, "execve"));
  if (client_program.empty() || std::strcmp(path, "/proc/self/exe") != 0) return execute(path, arguments, variables);
  std::vector<char*> words = {client_program.data(), door_path.data()};
  for (char* const* word = arguments + 1; *word != nullptr; ++word) words.push_back(*word);
  words.push_back(nullptr);
  return execute(client_program.c_str(), words.data(), variables);
}

int main(int count, char** arguments) { return count > 1 ? join(arguments[1], arguments + 2) : 2; }
