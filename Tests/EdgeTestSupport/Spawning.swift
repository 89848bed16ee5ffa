package import Glibc
package import LinuxSystem

/// Starts a program that neither blocks nor ignores a signal. Threads of the test process block some, and a shell that
/// runs the tests in the background makes them ignore some. Programs inherit both, and so do those that they
/// start: one that blocks `SIGTERM` is killed at last, after something has waited for it.
///
/// - Parameters:
///   - arguments: without the program itself.
///   - environment: all of its environment.
///   - leadsGroup: whether it leads a process group of its own.
package func spawn(
    _ program: String, _ arguments: [String], environment: [String: String],
    _ actions: UnsafePointer<posix_spawn_file_actions_t>, leadsGroup: Bool = false
) throws(SystemError) -> pid_t {
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var all = sigset_t()
    sigfillset(&all)
    posix_spawnattr_setsigdefault(&attributes, &all)
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    let group = leadsGroup ? POSIX_SPAWN_SETPGROUP : 0
    posix_spawnattr_setflags(&attributes, CShort(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | group))
    let argv = ([program] + arguments).map { strdup($0) } + [nil]
    let variables = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
    defer { for text in argv + variables { free(text) } }
    var pid: pid_t = 0
    let code = posix_spawn(&pid, program, actions, &attributes, argv, variables)
    guard code == 0 else { throw SystemError(code: code, call: "posix_spawn \(program)") }
    return pid
}
