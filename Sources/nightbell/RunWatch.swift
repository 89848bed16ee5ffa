import Glibc
import LinuxSystem
import Nightbell
import Presentation

/// Watches a program that `run` has started, from a process beside it: the program itself replaces `run`,
/// with its pid, its terminal and its exit status.
///
/// It reports a program that does not connect to Nightbell, or that does so under another identifier than its
/// user chose. On a terminal it stays as long as the program, and wakes clients that are interrupted: a
/// stopped process gets Ctrl-C only once it runs again.
struct RunWatch {
    let program: String
    let socketPath: String
    /// The user's choice (`--identifier`); nil: the program's own counts.
    let identifier: String?
    private let pid = getpid()

    /// If this fails, the program runs all the same.
    func begin() {
        do throws(SystemError) {
            let process = try ProcessHandle(opening: pid)
            try DetachedProcess.begin { watch(process) }
        } catch {
            complain("\(program) is not watched: \(error)")
        }
    }

    private func watch(_ process: borrowing ProcessHandle) {
        do throws(SystemError) {
            let signals = try SignalDescriptor([SIGINT, SIGQUIT, SIGTERM, SIGHUP])
            let set = try PollSet()
            try set.add(signals.rawValue)
            try set.add(process.rawValue)
            // Readers of the program's pipes wait for their end.
            close(STDIN_FILENO)
            close(STDOUT_FILENO)
            _ = unsafe chdir("/")
            let budget = launchBudget
            // A machine that sleeps takes no time from the program.
            let deadline = RunningClock.now() + Int64(min(budget / .nanoseconds(1), 0x1p62))
            var hasLooked = false
            while !process.hasExited {
                let left = max(0, (deadline - RunningClock.now()) / 1_000_000 + 1)
                let timeout = hasLooked ? -1 : CInt(clamping: left)
                if Poll.wait(set.rawValue, for: .readable, timeoutMilliseconds: timeout).isEmpty {
                    hasLooked = true
                    reportMistakes(after: budget)
                    guard Self.hasTerminal else { return }
                }
                var isInterrupted = false
                while try signals.next() != nil { isInterrupted = true }
                if isInterrupted { wakeSleepers() }
            }
        } catch {
            complain("\(program) is not watched any more: \(error)")
        }
    }

    private static var hasTerminal: Bool {
        do throws(SystemError) {
            _ = try OwnedDescriptor(opening: "/dev/tty", O_RDWR)
            return true
        } catch {
            return false
        }
    }

    // MARK: The supervisor

    /// The time in which a program has to send Hello, as configured in the supervisor.
    private var launchBudget: Duration {
        do throws(NightbellError) {
            var administration = try Administration(socketPath: socketPath)
            let budget = try administration.status().launchBudget
            return budget > .zero ? budget : Self.usualBudget
        } catch {
            return Self.usualBudget
        }
    }

    private static var usualBudget: Duration { .seconds(20) }

    /// The clients that are processes of the program: itself, a descendant, or in a process group that it
    /// leads, as in a shell's job. In a script the group is the script's, and may have other clients.
    private func clients() throws(NightbellError) -> [ClientInfo] {
        var administration = try Administration(socketPath: socketPath)
        let leadsGroup = getpgid(pid) == pid
        return try administration.list().filter { client in
            guard client.processID > 0 else { return false }
            return leadsGroup && getpgid(client.processID) == pid
                || ProcFS.firstOfAncestry(of: client.processID) { $0 == pid ? true : nil } ?? false
        }
    }

    private func reportMistakes(after budget: Duration) {
        do throws(NightbellError) {
            let names = try clients().map(\.identifier)
            if names.isEmpty {
                complain(
                    """
                    \(program), pid \(pid), has not said Hello to the supervisor within \(Human.duration(budget)): it \
                    does not speak to Nightbell, and is neither suspended nor woken
                    """)
            } else if let identifier, !names.contains(identifier) {
                complain(
                    """
                    \(program), pid \(pid), is the client \(names.joined(separator: ", ")), and not \(identifier) as \
                    --identifier asks: it does not send what NIGHTBELL_LAUNCH holds
                    """)
            }
        } catch {
            // Without a supervisor there is none to connect to.
        }
    }

    private func wakeSleepers() {
        do throws(NightbellError) {
            var administration = try Administration(socketPath: socketPath)
            for client in try clients() { try administration.wake(client.identifier) }
        } catch {
            // The program runs, or has just ended.
        }
    }
}
