import CLinux
import Glibc
package import LinuxSystem

/// Why a program could not be started: at which step, and the step's `errno`.
package struct LaunchError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Step: Sendable, Hashable {
        /// The specification is invalid.
        case specification
        /// No child process could be made.
        case process
        case descriptors
        case limits
        /// Its user or its groups could not be set.
        case identity
        case directory
        case output
        /// It does not exist, or is not executable.
        case program
    }

    package let step: Step
    package let code: Int32
    package let description: String

    /// Whether its program, or the directory that it is to run in, is not there, or the program is being
    /// written: the next attempt may find it.
    package var isMissing: Bool {
        switch step {
        case .program: code == ENOENT || code == ETXTBSY
        case .directory: code == ENOENT
        case .specification, .process, .descriptors, .limits, .identity, .output: false
        }
    }

    init(_ step: Step, _ code: Int32, _ what: String) {
        self.step = step
        self.code = code
        description = code == 0 ? what : "\(what): \(SystemError.message(for: code))"
    }
}

/// A program that is being started, in a process of its own.
///
/// The process exists at once, but runs its program only after `letRun()`, and never if all copies of
/// `reportDescriptor` are closed. Whether the program runs is known a little later.
package struct Launch: ~Copyable {
    /// nil while it is not known yet.
    package enum Outcome: Sendable, Equatable {
        case runs
        case failed(LaunchError)
    }

    package let process: ProcessHandle
    private let report: OwnedDescriptor
    private var memory: LaunchMemory?
    private let program: String
    private let directory: String

    /// Makes the process, and lets it run its program. Returns at once.
    package static func begin(
        _ order: LaunchOrder, _ slots: LaunchSlots? = nil
    ) throws(LaunchError) -> Launch {
        let launch = try prepare(order, slots)
        launch.letRun()
        return launch
    }

    /// Makes the process, which waits for `letRun()`. The order is not needed afterwards, nor are its
    /// descriptors.
    ///
    /// - Parameter slots: With free ones, a launch takes the same time however many descriptors are open.
    package static func prepare(
        _ order: LaunchOrder, _ slots: LaunchSlots? = nil
    ) throws(LaunchError) -> Launch {
        if let problem = order.specification.problem { throw LaunchError(.specification, 0, problem) }
        do throws(SystemError) {
            return try Launch(order, slots)
        } catch {
            throw LaunchError(.process, error.code, "no process can be made")
        }
    }

    private init(_ order: LaunchOrder, _ slots: LaunchSlots?) throws(SystemError) {
        var ends: [CInt] = [-1, -1]
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        _ = try systemCall("socketpair") { unsafe socketpair(AF_UNIX, kind, 0, &ends) }
        let ours = OwnedDescriptor(adopting: ends[0])
        // The child waits at its own end.
        let theirs = OwnedDescriptor(adopting: ends[1])
        let memory = try LaunchMemory(order, report: theirs.rawValue, slots)
        var pidfd: CInt = -1
        let pid = try systemCall("clone") { memory.start(&pidfd) }
        theirs.close()
        process = ProcessHandle(pidfd: OwnedDescriptor(adopting: pidfd), pid: pid)
        report = ours
        self.memory = memory
        program = order.specification.arguments.first ?? ""
        directory = order.specification.directory
    }

    /// Lets the program run. Once.
    package func letRun() { Self.letRun(report.rawValue) }

    /// The same, for a holder of a duplicate of `reportDescriptor`. A process that runs or has failed ignores
    /// it.
    package static func letRun(_ report: CInt) {
        var word: UInt8 = 1
        _ = unsafe send(report, &word, 1, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
    }

    /// A supervisor may be protected from the OOM killer; the programs that it launches are not. Call it only
    /// once the program runs: until then the kernel treats both as one.
    package static func takeProtection(from process: borrowing ProcessHandle) {
        do throws(SystemError) {
            guard try SmallFile.readText("/proc/self/oom_score_adj").hasPrefix("-") else { return }
            try SmallFile.write("0", to: "/proc/\(process.pid)/oom_score_adj")
        } catch {
            // It has ended, or may not be inspected.
        }
    }

    /// The process waits for a byte at the other end. Without slots, it is readable once the outcome is
    /// known.
    package var reportDescriptor: CInt { report.rawValue }

    /// The outcome; nil if it is not known yet.
    ///
    /// - Parameter isOver: The program has done something, or its process has ended: nothing but a failure
    ///   can be unknown.
    package mutating func outcome(isOver: Bool = false) -> Outcome? {
        memory?.releaseDescriptors()
        var failure = clinux_launch_failure()
        let rawValue = report.rawValue
        var count: Int? = 0
        do throws(SystemError) {
            count = try nonblockingSystemCall("recv") {
                unsafe recv(
                    rawValue, &failure, MemoryLayout<clinux_launch_failure>.size, CInt(MSG_DONTWAIT))
            }
        } catch {
            // It ended before `letRun()`.
            guard error.code == ECONNRESET else {
                preconditionFailure("a socket of our own can be read: \(error)")
            }
        }
        guard count != nil || isOver else { return nil }
        // The child no longer reads it.
        memory = nil
        guard count == MemoryLayout<clinux_launch_failure>.size else { return .runs }
        return .failed(error(failure))
    }

    private func error(_ failure: clinux_launch_failure) -> LaunchError {
        switch clinux_launch_stage(failure.stage) {
        case CLINUX_LAUNCH_DESCRIPTORS: LaunchError(.descriptors, failure.code, "descriptors")
        case CLINUX_LAUNCH_LIMITS: LaunchError(.limits, failure.code, "a limit cannot be set")
        case CLINUX_LAUNCH_IDENTITY: LaunchError(.identity, failure.code, "its user cannot be set")
        case CLINUX_LAUNCH_DIRECTORY:
            LaunchError(.directory, failure.code, "its working directory \(directory) cannot be entered")
        case CLINUX_LAUNCH_OUTPUT: LaunchError(.output, failure.code, "its output cannot be opened")
        default: LaunchError(.program, failure.code, program)
        }
    }

    /// If the outcome is still unknown, the child is killed and reaped. If that takes long, memory that it
    /// may still read is leaked.
    deinit {
        guard memory != nil else { return }
        do throws(SystemError) {
            try process.signal(SIGKILL)
        } catch {
            // It has ended.
        }
        guard !Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: 1_000).isEmpty else {
            return memory?.abandon() ?? ()
        }
        do throws(SystemError) {
            _ = try process.exitStatus()
        } catch {
            // Another part of this program has reaped it.
        }
    }
}
