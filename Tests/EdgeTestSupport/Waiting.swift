package import Glibc
import LinuxSystem

/// Polls until the condition holds, with pauses of two milliseconds at most; false when the time is over.
package func eventually(
    within milliseconds: Int64 = 10_000, _ condition: () throws -> Bool
) rethrows -> Bool {
    let deadline = BootClock.now() + milliseconds * 1_000_000
    var pause: useconds_t = 50
    while true {
        if try condition() { return true }
        if BootClock.now() > deadline { return false }
        // Other tests, and the processes that this one waits for, need the processors.
        usleep(pause)
        pause = min(2 * pause, 2_000)
    }
}

/// Whether a process has threads, and the kernel shows all of them in this state. A signal stops one after
/// the other.
package func threads(of pid: pid_t, are state: Character) -> Bool {
    let threads = ProcFS.threadIdentifiers(pid)
    return !threads.isEmpty && threads.allSatisfy { ProcFS.statistics(pid, thread: $0)?.state == state }
}

/// Stops a process by signal, and returns when it does nothing more. The signal is first taken by the thread that the
/// process began with; while that waits for a processor, the others go on.
///
/// - Returns: whether it has stopped.
@discardableResult
package func stop(_ pid: pid_t) -> Bool {
    kill(pid, SIGSTOP) == 0 && eventually { threads(of: pid, are: "T") }
}

/// A thread with a result.
package final class OwnThread<Value: Sendable>: @unchecked Sendable {
    // Sendable: `outcome` is written by the thread and read after it was joined.
    private var outcome: Result<Value, any Error>?
    private var thread: pthread_t = 0

    package init(_ body: @escaping @Sendable () throws -> Value) {
        let box = OwnThreadBody { self.outcome = Result { try body() } }
        let created = pthread_create(
            &thread, nil,
            { argument in
                guard let argument else { return nil }
                Unmanaged<OwnThreadBody>.fromOpaque(argument).takeRetainedValue().run()
                return nil
            }, Unmanaged.passRetained(box).toOpaque())
        precondition(created == 0, "a thread can be made")
    }

    package func join() throws -> Value {
        pthread_join(thread, nil)
        guard let outcome else { preconditionFailure("the thread has run") }
        return try outcome.get()
    }
}

private final class OwnThreadBody {
    let run: () -> Void
    init(_ run: @escaping () -> Void) { self.run = run }
}

/// Runs the body on a thread of its own and returns when it is done.
package func onOwnThread<Value: Sendable>(_ body: @escaping @Sendable () throws -> Value) throws -> Value {
    try OwnThread(body).join()
}
