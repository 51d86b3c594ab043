// Point-to-point messages, so that a rank that does not come can be named. The declarations are the
// part of Open MPI's binary interface that is used here: handles are addresses of objects in the
// library (https://github.com/open-mpi/ompi, ompi/include/mpi.h.in).
#include "comm/mpi_group.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/system/sanitizer.h"
#include "base/system/shared_library.h"

namespace braid {
namespace {

using Handle = void*;

constexpr int kSuccess = 0, kSerialized = 2;
// Calls follow each other; a tag tells neighbours apart. Each of eight channels has so many of the
// 32768 that there are at least.
constexpr int kTags = 1 << 12;

struct MpiStatus {
  int source, tag, error, cancelled;
  size_t count;
};

struct Mpi {
  int (*init)(int*, char***, int, int*);
  int (*finalize)();
  int (*rank)(Handle, int*);
  int (*size)(Handle, int*);
  int (*set_error_handler)(Handle, Handle);
  int (*send)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*receive)(void*, int, Handle, int, int, Handle, Handle*);
  int (*test)(Handle*, int*, MpiStatus*);
  int (*count)(const MpiStatus*, Handle, int*);
  int (*error_text)(int, char*, int*);
  Handle world, byte, errors_return;

  std::string Text(int code) const {
    char text[512] = {};  // MPI_MAX_ERROR_STRING is 256
    int length = 0;
    error_text(code, text, &length);
    return text;
  }
};

Error Unavailable(std::string message) { return {ErrorCode::kUnavailable, std::move(message)}; }

Result<Mpi> LoadMpi() {
  constexpr const char* kFiles[] = {"libmpi.so.40"};
  ASSIGN_OR_RETURN(SharedLibrary library,
                   SharedLibrary::Load({.product = "Open MPI 4.1",
                                        .purpose = "to start ranks as processes",
                                        .package = "openmpi-bin",
                                        .files = kFiles,
                                        .global = true}));
  Mpi mpi;
  library.Find("MPI_Init_thread", mpi.init);
  library.Find("MPI_Finalize", mpi.finalize);
  library.Find("MPI_Comm_rank", mpi.rank);
  library.Find("MPI_Comm_size", mpi.size);
  library.Find("MPI_Comm_set_errhandler", mpi.set_error_handler);
  library.Find("MPI_Isend", mpi.send);
  library.Find("MPI_Irecv", mpi.receive);
  library.Find("MPI_Test", mpi.test);
  library.Find("MPI_Get_count", mpi.count);
  library.Find("MPI_Error_string", mpi.error_text);
  library.Find("ompi_mpi_comm_world", mpi.world);
  library.Find("ompi_mpi_byte", mpi.byte);
  library.Find("ompi_mpi_errors_return", mpi.errors_return);
  RETURN_IF_ERROR(library.FoundAll());
  return mpi;
}

// A message on its way.
struct Message {
  Handle request = nullptr;
  int32_t peer = 0;
  std::optional<size_t> expected;  // bytes, of one that is received
};

// What a process' groups have in common. Several threads may use a group each: one calls Open MPI
// at a time, as it was asked for.
struct Process {
  const Mpi mpi;
  const std::chrono::milliseconds deadline;
  std::mutex mutex;
  std::optional<Error> error;  // under the mutex
};

class MpiRank final : public Communicator {
 public:
  // All ranks; owns the process' part in MPI.
  MpiRank(std::unique_ptr<Process> process, int32_t rank, int32_t size)
      : Communicator(rank, size),
        owned_(std::move(process)),
        process_(*owned_),
        mpi_(process_.mpi),
        members_(static_cast<size_t>(size)) {
    std::iota(members_.begin(), members_.end(), 0);
  }
  // Some of them.
  MpiRank(Process& process, int32_t rank, std::vector<int32_t> members, int32_t channel,
          bool patient)
      : Communicator(rank, static_cast<int32_t>(members.size())),
        process_(process),
        mpi_(process.mpi),
        members_(std::move(members)),
        channel_(channel),
        patient_(patient) {}
  ~MpiRank() override {
    if (!owned_ || owned_->error) return;
    // Finalizing unloads the other plugins, and then nobody can tell their leaks from ours.
    if (__lsan_do_leak_check != nullptr) __lsan_do_leak_check();
    mpi_.finalize();
  }
  Process& process() { return process_; }

 private:
  Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) override {
    std::unique_lock lock(process_.mutex);
    std::optional<Error>& error = process_.error;
    if (error) return *error;
    if (const Status status = Start(send, receive); !status) error = status.error();
    if (!error) Finish(lock);
    return error ? Status(*error) : Status();
  }

  Status Start(std::span<const Bytes> send, std::span<const MutableBytes> receive) {
    const int tag = channel_ * kTags + static_cast<int>(++calls_ % kTags);
    messages_.clear();
    for (int32_t i = 1; i < size(); ++i) {
      const int32_t from = (rank() + size() - i) % size();
      const MutableBytes part = receive[static_cast<size_t>(from)];
      Message message{.peer = from, .expected = part.size()};
      RETURN_IF_ERROR(Begin(mpi_.receive(part.data(), Count(part.size()), mpi_.byte,
                                         members_[static_cast<size_t>(from)], tag, mpi_.world,
                                         &message.request)));
      messages_.push_back(message);
    }
    for (int32_t i = 1; i < size(); ++i) {
      const int32_t to = (rank() + i) % size();
      const Bytes part = send[static_cast<size_t>(to)];
      Message message{.peer = to};
      RETURN_IF_ERROR(
          Begin(mpi_.send(part.data(), Count(part.size()), mpi_.byte,
                          members_[static_cast<size_t>(to)], tag, mpi_.world, &message.request)));
      messages_.push_back(message);
    }
    return {};
  }

  static int Count(size_t bytes) {
    CHECK(bytes <= INT_MAX, "{} bytes in a message of at most 2 GiB", bytes);
    return static_cast<int>(bytes);
  }

  Status Begin(int code) const {
    if (code == kSuccess) return {};
    return Error{ErrorCode::kInternal, "Open MPI: " + mpi_.Text(code)};
  }

  // Until all messages have arrived, or there is an error.
  void Finish(std::unique_lock<std::mutex>& lock) {
    const int64_t end_us = MonotonicUs() + std::chrono::microseconds(process_.deadline).count();
    while (!messages_.empty() && !process_.error) {
      std::erase_if(messages_, [this](Message& message) { return Arrived(message); });
      if (messages_.empty() || process_.error) return;
      if (MonotonicUs() > end_us) {
        process_.error = Unavailable(
            fmt::format("no word from rank {} within {} ms", Waiting(), process_.deadline.count()));
      }
      lock.unlock();
      if (patient_) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      } else {
        ::sched_yield();  // ranks may share cores
      }
      lock.lock();
    }
  }

  bool Arrived(Message& message) {
    int done = 0;
    MpiStatus status{};
    const int code = mpi_.test(&message.request, &done, &status);
    if (code != kSuccess) {
      process_.error = Error{ErrorCode::kInternal,
                             fmt::format("rank {}: {}", Member(message.peer), mpi_.Text(code))};
      return true;
    }
    if (done == 0) return false;
    if (!message.expected) return true;
    int count = 0;
    mpi_.count(&status, mpi_.byte, &count);
    if (static_cast<size_t>(count) != *message.expected) {
      process_.error =
          Error{ErrorCode::kInternal,
                fmt::format("rank {} sent {} bytes to rank {}, which expected {}",
                            Member(message.peer), count, Member(rank()), *message.expected)};
    }
    return true;
  }

  std::string Waiting() const {
    std::string ranks;
    for (const Message& message : messages_) {
      const std::string name = fmt::format("{}", Member(message.peer));
      if (!message.expected) continue;  // it reads once it has come
      ranks += ranks.empty() ? name : ", " + name;
    }
    return ranks.empty() ? fmt::format("{}", Member(messages_.front().peer)) : ranks;
  }

  // Errors name ranks by their numbers among all.
  int32_t Member(int32_t rank) const { return members_[static_cast<size_t>(rank)]; }

  const std::unique_ptr<Process> owned_;  // null: of some of the ranks
  Process& process_;
  const Mpi& mpi_;
  std::vector<int32_t> members_;
  const int32_t channel_ = 0;
  const bool patient_ = false;  // no step waits for it
  std::vector<Message> messages_;
  uint64_t calls_ = 0;
};

}  // namespace

namespace {

// Ends the process if the others do not start within three deadlines: Open MPI would wait for ever.
class StartLimit {
 public:
  explicit StartLimit(std::chrono::milliseconds deadline)
      : thread_([this, limit = 3 * deadline] {
          std::unique_lock lock(mutex_);
          if (started_.wait_for(lock, limit, [this] { return over_; })) return;
          fmt::print(stderr, "braid: no word from the other ranks within {} ms of the start\n",
                     limit.count());
          std::_Exit(1);
        }) {}
  ~StartLimit() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    started_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable started_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> JoinMpiGroup(std::chrono::milliseconds deadline) {
  ASSIGN_OR_RETURN(const Mpi mpi, LoadMpi());
  int provided = 0, rank = 0, size = 0;
  const StartLimit limit(deadline);
  // What it keeps is not ours, and some of its plugins are unloaded before they can be named.
  if (__lsan_disable != nullptr) __lsan_disable();
  const int code = mpi.init(nullptr, nullptr, kSerialized, &provided);
  if (__lsan_enable != nullptr) __lsan_enable();
  if (code != kSuccess) return Unavailable("Open MPI: " + mpi.Text(code));
  if (provided < kSerialized) return Unavailable("Open MPI was built without threads");
  mpi.set_error_handler(mpi.world, mpi.errors_return);
  mpi.rank(mpi.world, &rank);
  mpi.size(mpi.world, &size);
  std::unique_ptr<Process> process(new Process{mpi, deadline, {}, {}});
  return std::unique_ptr<Communicator>(std::make_unique<MpiRank>(std::move(process), rank, size));
}

std::unique_ptr<Communicator> MpiGroupOf(Communicator& all, std::vector<int32_t> members,
                                         int32_t channel, bool patient) {
  const auto own = std::find(members.begin(), members.end(), all.rank());
  CHECK(own != members.end() && channel >= 1 && channel <= 7, "rank {}", all.rank());
  const auto rank = static_cast<int32_t>(own - members.begin());
  return std::make_unique<MpiRank>(static_cast<MpiRank&>(all).process(), rank, std::move(members),
                                   channel, patient);
}

}  // namespace braid
