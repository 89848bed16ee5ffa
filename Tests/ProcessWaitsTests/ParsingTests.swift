import CLinux
import Glibc
import LinuxSystem
import ProcessWaits
import Testing

@Suite("The kernel's texts about threads, descriptors and cgroups")
struct ParsingTests {
    private func state(_ text: String) -> ThreadState? { ThreadState(Array(text.utf8)) }

    private func call(_ number: Int, _ arguments: String) -> BlockedCall? {
        guard case .blocked(let call)? = state("\(number) \(arguments) 0x7ffd0 0x7f00\n") else { return nil }
        return call
    }

    @Test("A thread that runs, or is in the kernel without a call")
    func unblocked() {
        #expect(state("running\n") == .runs)
        #expect(state("-1 0x7ffd 0x7f00\n") == .inKernel)
    }

    @Test("epoll, with and without a timeout")
    func epoll() throws {
        let timed = try #require(call(Int(SYS_epoll_pwait), "0x3 0x7f 0x2 0xbb8 0x0 0x8"))
        #expect(timed.kind == .epoll)
        #expect(timed.descriptor == 3)
        #expect(timed.timeout == .after(.seconds(3)))
        let untimed = try #require(call(Int(SYS_epoll_pwait), "0x3 0x7f 0x2 0xffffffff 0x0 0x8"))
        #expect(untimed.timeout == .never)
    }

    @Test("poll and select have their descriptors in memory")
    func lists() throws {
        let poll = try #require(call(Int(SYS_ppoll), "0x7f10 0x2 0x0 0x0 0x8 0x0"))
        #expect(poll.list == .entries(0x7f10, count: 2))
        #expect(poll.timeout == .never)
        let select = try #require(call(Int(SYS_pselect6), "0x5 0x7f10 0x0 0x7f20 0x7f30 0x0"))
        #expect(select.list == .sets([0x7f10, 0, 0x7f20], count: 5))
        #expect(select.timeout == .atAddress(0x7f30, unit: .nanoseconds))
    }

    @Test("Futexes, sleeps and calls of which nothing is known")
    func others() throws {
        #expect(call(Int(SYS_futex), "0x7f10 0x80 0x0 0x0 0x0 0x0")?.timeout == .never)
        #expect(
            call(Int(SYS_futex), "0x7f10 0x80 0x0 0x7f20 0x0 0x0")?.timeout
                == .atAddress(0x7f20, unit: .nanoseconds))
        #expect(
            call(Int(SYS_futex), "0x7f10 0x189 0x0 0x7f20 0x0 0x0")?.timeout
                == .atAddress(0x7f20, unit: .nanoseconds, clock: CLOCK_REALTIME))
        #expect(
            call(Int(SYS_clock_nanosleep), "0x1 0x1 0x7f20 0x0 0x0 0x0")?.timeout
                == .atAddress(0x7f20, unit: .nanoseconds, clock: CLOCK_MONOTONIC))
        #expect(
            call(Int(SYS_clock_nanosleep), "0x0 0x0 0x7f20 0x0 0x0 0x0")?.timeout
                == .atAddress(0x7f20, unit: .nanoseconds))
        #expect(call(Int(SYS_clock_nanosleep), "0x2 0x0 0x7f20 0x0 0x0 0x0")?.timeout == .unknown)
        #expect(call(Int(SYS_nanosleep), "0x7f10 0x0 0x0 0x0 0x0 0x0")?.kind == .sleep)
        #expect(call(Int(SYS_restart_syscall), "0x0 0x0 0x0 0x0 0x0 0x0")?.kind == .restarted)
        #expect(call(Int(SYS_io_uring_enter), "0x4 0x0 0x1 0x1 0x0 0x8")?.kind == .ring)
        #expect(call(9_999, "0x0 0x0 0x0 0x0 0x0 0x0")?.kind == .other(9_999))
    }

    @Test(
        "Nonsense has no meaning",
        arguments: ["", "\n", "7", "7 0x1", "7 1 2 3 4 5 6", "x 0x0 0x0 0x0 0x0 0x0 0x0"])
    func nonsense(_ text: String) {
        #expect(state(text) == nil)
    }

    @Test("Descriptors by their links")
    func descriptors() {
        #expect(OpenDescriptor(link: "socket:[123]") == .socket)
        #expect(OpenDescriptor(link: "anon_inode:[eventpoll]") == .epoll)
        #expect(OpenDescriptor(link: "anon_inode:inotify") == .fileChanges)
        #expect(OpenDescriptor(link: "anon_inode:[io_uring]") == .ring)
        #expect(OpenDescriptor(link: "/dev/pts/3") == .terminal)
        #expect(OpenDescriptor(link: "/dev/snd/pcmC0D0p") == .device("/dev/snd/pcmC0D0p"))
        #expect(OpenDescriptor(link: "/dev/null") == .file("/dev/null"))
        #expect(OpenDescriptor(link: "/var/log/x (deleted)") == .file("/var/log/x (deleted)"))
        #expect(OpenDescriptor(link: "net:[4026531992]") == .other("net:[4026531992]"))
    }

    @Test("Cgroups by their owners")
    func groups() {
        #expect(ProcessGroup("1:memory:/x\n0::/system.slice/ssh.service\n") == .unit("ssh.service"))
        #expect(ProcessGroup("0::/user.slice/user-1.slice/session-3.scope\n") == .unit("session-3.scope"))
        #expect(ProcessGroup("0::/system.slice/docker-0a1b.scope/init\n") == .container("docker-0a1b.scope"))
        #expect(ProcessGroup("0::/docker/0a1b\n") == .container("0a1b"))
        #expect(ProcessGroup("0::/mine\n") == .cgroup("/mine"))
        #expect(ProcessGroup("0::/\n") == .root)
        #expect(ProcessGroup("4:memory:/\n") == ProcessGroup.none)
    }
}
