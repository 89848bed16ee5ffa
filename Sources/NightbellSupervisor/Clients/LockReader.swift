import Glibc
import LinuxSystem
import NightbellCore

/// Counts the file locks of a process on a thread of its own: the kernel goes through all locks of each file, of
/// which a user can have a million.
///
/// `finished` is signalled when a count can be taken.
@safe
final class LockReader: @unchecked Sendable {
    // Sendable: the count and its time are touched only with the lock held, everything else only on the loop's thread.

    let finished: EventDescriptor
    private let lock = Lock()
    private var count: Int?
    private var time = Duration.zero
    /// Of the client that is looked at; nil: none is.
    private var client: ClientID?

    init() throws(SystemError) { finished = try EventDescriptor() }

    var isReading: Bool { client != nil }

    /// Counts the locks of a client's process. Only when none is being looked at.
    func read(_ client: ClientID, _ pid: pid_t) {
        self.client = client
        // Strongly: the thread may outlive the supervisor.
        let code = Thread.start(stackSize: Thread.smallStack) {
            self.finish(ProcFS.fileLocksHeld(pid), after: .nanoseconds(ThreadClock.now()))
        }
        if code != 0 { finish(nil, after: .zero) }
    }

    private func finish(_ locks: Int?, after time: Duration) {
        lock.lock()
        count = locks
        self.time = time
        lock.unlock()
        do throws(SystemError) {
            try finished.signal()
        } catch {
            preconditionFailure("an eventfd of our own can be written to: \(error)")
        }
    }

    /// The client, how many locks its process holds, if that is known, and the processor time that it took to count them.
    func take() -> (ClientID, locks: Int?, time: Duration)? {
        do throws(SystemError) {
            try finished.clear()
        } catch {
            preconditionFailure("an eventfd of our own can be read: \(error)")
        }
        lock.lock()
        defer { lock.unlock() }
        guard let client = client.take() else { return nil }
        return (client, count.take(), time)
    }
}
