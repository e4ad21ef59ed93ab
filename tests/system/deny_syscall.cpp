// Runs a program under a seccomp filter that refuses some system calls, as containers do:
//
//   deny_syscall pidfd_getfd=EPERM pidfd_open=ENOSYS -- PROGRAM [ARGUMENTS]
//
// Exits with 77 if the kernel takes no filter.

#include <seccomp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

int main(int argc, char** argv) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  int i = 1;
  for (; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    const std::string rule = argv[i];
    const auto equals = rule.find('=');
    const std::string name = rule.substr(0, equals);
    const std::string error = equals == std::string::npos ? "EPERM" : rule.substr(equals + 1);
    const std::uint32_t number = error == "ENOSYS" ? ENOSYS : error == "EACCES" ? EACCES : EPERM;
    const int call = seccomp_syscall_resolve_name(name.c_str());
    if (call == __NR_SCMP_ERROR || seccomp_rule_add(filter, SCMP_ACT_ERRNO(number), call, 0) != 0) {
      std::fprintf(stderr, "deny_syscall: %s can't be refused\n", rule.c_str());
      return 2;
    }
  }
  if (i + 1 >= argc) return 2;
  if (const int error = seccomp_load(filter); error != 0) {
    std::fprintf(stderr, "deny_syscall: the kernel takes no filter: %s\n", std::strerror(-error));
    return 77;
  }
  seccomp_release(filter);
  ::execvp(argv[i + 1], argv + i + 1);
  std::perror("deny_syscall: exec");
  return 127;
}
