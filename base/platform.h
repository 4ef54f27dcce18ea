#pragma once

#include <csignal>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct stat;

namespace lopt {

// What lopt asks of the kernel and the C library that not every POSIX system has, or has by another
// name: prctl, signalfd, eventfd, epoll, memfd_create, TCP_INFO, /proc, dladdr1, sched_getaffinity
// and a few calls with flags. base/platform.cc is Linux's, and a port to another system is another
// such file; tests/layering_test.cc keeps these names out of all others. Descriptors are closed by
// exec and by whoever asked for them; where one cannot be made, the result is -1 and errno says
// why.

// Processes.

// The path of the program that runs; empty if the system does not say.
std::string ProgramPath();
// The path of the shared library or extension that holds this code; empty where the program itself
// does.
std::string OwnLibraryPath();
// What process ids belong to: a boot of a kernel and a namespace. Equal for two processes that can
// see each other; empty if the system does not say both.
std::string ProcessSpace();
// The same of these two.
std::string ProcessSpaceOf(const std::string& boot, const std::string& pid_namespace);
// What the system says of a process.
struct ProcessStat {
  char state = 0;  // 'Z': a zombie, 'X': dead
  int64_t parent = 0;
  int64_t start = 0;  // in clock ticks since the boot
};
// none: there is no such process, or it cannot be seen.
std::optional<ProcessStat> ReadProcessStat(int64_t pid);
// The ids of all processes that can be seen, zombies included.
std::vector<int64_t> VisibleProcesses();
// Has the system kill this process when its parent's thread that made it ends. Allowed between fork
// and exec, and lasts beyond an exec.
void DieWithParent();
// Whether the path stands for what this process has open: /dev/stdin and the like, and /dev/fd/63
// or what /proc calls it, which a shell makes of <(...).
bool NamesDescriptor(std::string_view path);
// From now on processes whose parent has died become children of this process and not of init.
void AdoptOrphans();

// The machine.

// The cores that the control groups of this process allow it, by their limits of processor time
// (docker run --cpus); none where there is no limit.
std::optional<int64_t> ControlGroupCores();
// The same of a process whose /proc/PID/cgroup has this text, where the groups are files in the
// directory `root`, in versions 1 and 2 of control groups. The lowest limit counts, of the group or
// of one above it, rounded up to whole cores.
std::optional<int64_t> ControlGroupCoresOf(const std::string& groups, const std::string& root);

// The cores that this process may run on (its affinity), which may be those of the whole machine.
int AffinityCores();

// Has short sleeps of this thread end to the microsecond; they are rounded up to 50 us otherwise.
void SleepPrecisely();
// The processor's name for people; "unknown" if the system does not say.
std::string ProcessorName();
// Asks for the registers of AMX, Intel's matrix unit, for all threads of this process; whether it
// has them. The processor must have the unit.
bool AllowMatrixTiles();

// Memory.

// Gives what was freed back to the system, and begins PeakMemoryBytes anew.
void ResetPeakMemory();
// The most memory that the process held; 0 if the system does not say.
int64_t PeakMemoryBytes();

// Files.

// When the file was changed last, of what stat says of it.
timespec ModifiedAt(const struct stat& file);

// Descriptors.

// Readable while one of these signals, which are to be blocked, is pending. Never waits.
int OpenSignals(const sigset_t& signals);
// Takes the next pending signal; 0 if there is none.
int NextSignal(int descriptor);
// Readable once RaiseEvent was called.
int OpenEvent();
void RaiseEvent(int descriptor);
// An empty file in memory without a name; `purpose` is for those who look at the process.
int OpenMemoryFile(const char* purpose);
// The two ends, to read and to write; whether it could be made.
bool OpenPipe(int* from, int* to);
// A stream socket that never waits, of a family of addresses; and a connection that has come to it.
int OpenStreamSocket(int family);
int AcceptConnection(int socket);
// What the system says of a TCP connection.
struct TcpStatus {
  bool open = true;      // this side has not ended it, and the other has not broken it off
  int64_t received = 0;  // bytes that have come, whoever has read them
};
TcpStatus ReadTcpStatus(int socket);
// Has a TCP connection take in only a few KiB at a time, until it is widened. Nothing happens where
// the system could not widen it again.
void NarrowReceiving(int socket);
void WidenReceiving(int socket);
// Breaks a TCP connection off: what has come and was not read is lost, and its descriptors stay.
void BreakConnection(int socket);

// A watch over many descriptors, which says which of them have news: that the other end of a
// connection has gone and, with `input`, that more has come to read. It says so once for each news.
// A descriptor that is closed, and all its copies with it, is not watched any more.
int OpenWatch();
// Whether the watch took it; `name` is what it says.
bool Watch(int watch, int descriptor, int64_t name, bool input);
// From now on the watch says nothing of what comes to read.
void WatchEndOnly(int watch, int descriptor, int64_t name);
void Unwatch(int watch, int descriptor);
// Waits until there are news, but for so many milliseconds at most (-1: without end), and puts the
// names into `names`. Returns how many.
size_t WaitForNews(int watch, int milliseconds, std::span<int64_t> names);

}  // namespace lopt
